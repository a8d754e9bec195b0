"""CFL: clusters share a network, and are cut in two where their clients' updates disagree (Sattler et al., 2020).

    Y_ij = n_j / n_c,  n_c = sum_{j in c} n_j,  for i and j of one cluster c, else 0     a Dirac prior; all begin in one
    theta_i <- sum_j Y_ij theta_j^{t+1/2}, a network for each cluster;  Delta_j = theta_j^{t+1/2} - theta_j^t
    c is cut where |sum_{j in c} n_j Delta_j| / n_c < eps1 and max_{j in c} |Delta_j| > eps2, it rests and its clients do
    not, into the two sides with the lowest max_{i, j on different sides} cos(Delta_i, Delta_j)

Cases 1.1 and 2.2: who is in which cluster is a parameter of the prior, which no bound decides on, and no cut is undone.
Left out: the paper's bound on the cosine across a cut, and its tree, down which a newcomer finds its cluster; here it
begins in the first.
"""

import torch
from torch import Tensor

from scool_ppl import CooperationModel, Evidence, InputError, priors
from scool_ppl.look import Ignored
from scool_ppl.mix import MixModels


class Clusters(priors.Dirac):
    """Y_ij = n_j / n_c within a cluster c; `cluster` has the number of each client's, and cuts change it."""

    needs, client_axes, accumulates = ("round_updates",), {"cluster": (0,)}, True

    def __init__(self, count: Tensor, eps1: float, eps2: float) -> None:
        super().__init__((count / count.sum()).expand(len(count), -1))
        self.register_buffer("cluster", torch.zeros(len(count)))
        self.count, self.eps1, self.eps2 = count, eps1, eps2

    def closed_form(self, moments: dict[str, Tensor], evidence: Evidence) -> dict[str, Tensor]:
        moved = torch.cat([value.flatten(1).double() for value in evidence.round_updates.values()], 1)
        inner, length, cluster = moved @ moved.T, moved.norm(dim=1), self.cluster.clone()
        there = evidence.present & length.isfinite()
        for label in self.cluster[there].unique():
            who = (there & (self.cluster == label)).nonzero()[:, 0]
            own, within, share = length[who], inner[who][:, who], self.count[who] / self.count[who].sum()
            if len(who) > 1 and share @ within @ share < self.eps1**2 and own.max() > self.eps2:
                cluster[who[other_side(within / own.outer(own))]] = cluster.max() + 1
        weights = (cluster[:, None] == cluster) * self.count
        return {"cluster": cluster, "weights": weights / weights.sum(1, keepdim=True)}


def other_side(cosine: Tensor) -> Tensor:
    """Whom the best cut parts from the first client, (N,): whose best path to it has the weakest link of all."""
    cosine = cosine.nan_to_num(0).fill_diagonal_(torch.inf)
    link, wider = cosine[0] - 1, cosine[0]
    while not torch.equal(link, wider):
        link, wider = wider, torch.minimum(wider[:, None], cosine).amax(0)
    return link == link.min()


def build(num_clients: int, eps1: float = 0.7, eps2: float = 1.0, samples: Tensor | None = None) -> CooperationModel:
    """`eps1`: a mean update that is shorter is at rest. `eps2`: a client's that is longer is not. `samples`: images n_j
    of each client (K,), from the federation.
    """
    if not (eps1 >= 0 and eps2 >= 0):
        raise InputError(f"eps1={eps1}, eps2={eps2}: expected lengths of at least 0")
    count = torch.ones(num_clients) if samples is None else samples
    return CooperationModel(Clusters(count.double(), eps1, eps2), Ignored(), MixModels())
