"""L2C: learn mixing weights that lower one's own validation loss (Li et al., 2022).

    Y_i one-hot ~ Categorical(softmax alpha_i),  alpha_i ~ Normal(0, 1 / decay)
    P(D_val | theta, Y) = prod_i P(D_i^val | theta_i^t + sum_j Y_ij Delta_j),  Delta_j what local training did to theta_j
    theta_i <- theta_i^t + sum_j w_ij Delta_j,  w_i = softmax(alpha_i)                  candidates include i itself

As in Algorithm 1 a round mixes by the alpha that it begins with; then alpha moves by Adam (the authors' weight decay is
its prior, q a point mass): 5 steps in 20 rounds for the paper's one in 100, anew in every round, halved until the loss
does not rise. The loss is on at most 100 (`probe_size`) validation images a round, the paper's on all.
"""

from functools import partial

import pyro
import pyro.distributions as dist
import torch

from scool_ppl import CooperationModel, Evidence, GraphPrior, InputError, NaturalGradient
from scool_ppl.look import All, MixedValidation, Top
from scool_ppl.mix import MixUpdates


class FreeRows(GraphPrior):
    """E[Y_i] = softmax alpha_i, log P(alpha) = -decay / 2 |alpha|^2: rows of parameters, of which q has a point mass."""

    includes_self = True
    kind = "rows"
    client_axes = {"alpha": (0, 1)}  # learned for each pair of clients

    def __init__(self, num_clients: int, decay: float) -> None:
        super().__init__(num_clients)
        if decay < 0:
            raise InputError(f"decay is {decay}, expected at least 0")
        self.decay = decay
        self.alpha = torch.nn.Parameter(torch.zeros(num_clients, num_clients))

    def model(self, evidence: Evidence) -> torch.Tensor:
        pyro.factor("alpha_prior", -self.decay / 2 * self.alpha.square().sum())
        rows = self.row_logits(evidence.peers.take(self.alpha)).softmax(-1)
        with self.clients:
            return pyro.sample("Y", dist.Delta(rows, event_dim=1), obs=rows)


def build(
    num_clients: int,
    learning_rate: float = 0.1,
    decay: float = 0.01,
    steps: int = 5,
    keep: int | None = None,
    after: int = 10,
    clip: float | None = None,
) -> CooperationModel:
    """`learning_rate`, `decay`: rate and weight decay of Adam on alpha (printed). `steps`: of Adam a round. `keep`: peers
    kept, all if none (paper: a tenth). `after`: rounds before any is dropped (printed). `clip` as in scool_sbm."""
    adam = partial(torch.optim.Adam, lr=learning_rate)
    peers = All() if keep is None else Top(keep, after)
    e_step = NaturalGradient(sweeps=1, optimizer=adam, optimizer_steps=steps)
    return CooperationModel(FreeRows(num_clients, decay), MixedValidation(), MixUpdates(clip), peers, e_step)
