"""FedFomo: take from each model as much as it helps on one's own validation data (Zhang et al., 2021).

    Y_i one-hot,  P(Y_ij = 1 | theta) = max(s_ij, 0) / sum_l max(s_il, 0)
    s_ij = (V_i(theta_i^t) - V_i(theta_j^{t+1/2})) / |theta_j^{t+1/2} - theta_i^t|         candidates include i itself
    theta_i <- theta_i^t + sum_j w_ij (theta_j^{t+1/2} - theta_i^t)

Cases 1.1 and 2.2: the likelihood does not involve Y, the posterior is the prior. V is the loss on validation data.
"""

from typing import Literal

import pyro
import torch

from scool_ppl import CooperationModel, Evidence, GraphPrior, OneHot
from scool_ppl.look import All, Distance, EpsilonGreedy, Ignored
from scool_ppl.mix import MixModels


class FirstOrder(GraphPrior):
    """Y_i one-hot with probabilities in proportion to the first-order gain s_ij, where it is positive."""

    includes_self = True
    kind = "rows"

    def __init__(self, num_clients: int, norm: float, fallback: str) -> None:
        super().__init__(num_clients)
        self.norm, self.fallback = norm, fallback
        self.needs = ("validation_before", "validation_received", Distance(norm))

    def gain(self, evidence: Evidence) -> torch.Tensor:
        """max(s, 0) of candidates, (K, M); where a row has none, the fallback."""
        better = (evidence.validation_before[:, None] - evidence.validation_received).double()
        gain = (better.clamp(min=0) / evidence.distance(self.norm).clamp(min=1e-12)).nan_to_num(0, 0)
        gain = torch.where(evidence.peers.mask, gain, 0.0)
        own = (evidence.peers.columns() == torch.arange(self.num_clients)[:, None]).double()
        return gain if self.fallback == "before" else torch.where(gain.sum(1, keepdim=True) > 0, gain, own)

    def model(self, evidence: Evidence) -> torch.Tensor:
        gain = self.gain(evidence)
        some = gain.sum(1, keepdim=True) > 0
        logits = torch.where(some, gain, 1.0).log().clamp(min=-1e6)  # finite, and its exponential is 0
        with self.clients:
            rows = pyro.sample("Y", OneHot(logits=self.row_logits(logits)))
        return torch.where(some, rows, 0.0)  # a client whom nobody helps takes nothing and stays where it was


def build(
    num_clients: int,
    count: int | None = 5,
    epsilon: float = 0.3,
    decay: float = 0.05,
    norm: float = 2.0,
    fallback: Literal["before", "trained"] = "before",
) -> CooperationModel:
    """`count`: models downloaded, all if none (printed). `epsilon`: chance of one at random, not by past w, in the paper s
    (printed). `decay`: of it a round (printed). `norm`: of distances (code: 1). `fallback`: theta_i if no s_ij > 0.
    """
    peers = All() if count is None else EpsilonGreedy(count, epsilon, decay)  # count: models downloaded a round
    return CooperationModel(FirstOrder(num_clients, norm, fallback), Ignored(), MixModels(base="before"), peers)
