"""pFedGraph: rows between what clients' sizes and their networks' likeness say (Ye et al., 2023).

    log P(Y_i) = -|Y_i - p|^2 + const on the simplex,  p_j = n_j / sum_l n_l          candidates include i itself
    log P(D | Y) = alpha sum_ij Y_ij cos(u_i, u_j),  u_i = theta_i^{t+1/2} - theta^0
    w_i = argmin_w |w - p|^2 - alpha sum_j w_j cos(u_i, u_j) = the point of the simplex nearest to p + alpha / 2 cos(u_i, u)
    m_i = sum_j w_ij theta_j^{t+1/2},  then from m_i on  theta_i <- theta_i - eta (grad L_i + lam (theta_i - m_i) / |m_i|^2)

q(Y) is a point mass; a projected step of 1/2 ends at the exact w_i from anywhere. The paper's regulariser is a cosine;
the pull is the second order of -lam cos(theta_i, m_i) at m_i, and holds the length of theta_i, too. The
authors' code has |w - p|^2 times .8 where alpha is 1.25 here, and counts cosines above .9 as 1. Values: models/README.md.
"""

import pyro
import torch
from torch import Tensor

from scool_ppl import CooperationModel, Evidence, InputError, ProjectedGradient, priors
from scool_ppl.graph import Peers
from scool_ppl.look import UpdateCosine
from scool_ppl.mix import Mixing, MixModels, Terms
from scool_ppl.train import Params, Pull, RoundStart


class Sizes(priors.Box):
    """log P(Y) = -sum_i |Y_i - p|^2 + const, p the shares of the candidates who are there."""

    includes_self = True

    def __init__(self, count: Tensor) -> None:
        super().__init__(len(count), start=0.0)
        self.register_buffer("count", count)

    def model(self, evidence: Evidence) -> Tensor:
        graph, peers = super().model(evidence), evidence.peers
        count = torch.where(peers.mask, peers.gather(self.count), 0.0)
        share = count / count.sum(1, keepdim=True).clamp(min=1e-30)
        pyro.factor("sizes", -torch.where(peers.mask, graph - share, 0.0).square().sum())
        return graph


class Aggregate(Mixing):
    """Training starts at the aggregate, theta_i^t = m_i, and is pulled towards it."""

    def __init__(self, lam: float) -> None:
        if lam < 0:
            raise InputError(f"lam is {lam}, expected at least 0")
        self.lam = lam

    def __call__(self, before: Params, trained: Params, weights: Tensor, peers: Peers) -> Params:
        return MixModels()(before, trained, weights, peers)

    def during(self, start: RoundStart) -> Terms:
        square = sum((value.flatten(1).square().sum(1) for value in start.params.values()), torch.tensor(0.0))
        return Terms(Pull(start.params, self.lam / square.clamp(min=1e-30)) if self.lam and start.round else None)


def build(num_clients: int, alpha: float = 1.25, lam: float = 0.01, samples: Tensor | None = None) -> CooperationModel:
    """`alpha`: weight of cosines (code: 1.25). `lam`: of the pull to m_i. `samples`: images n_j, from the federation."""
    sizes = Sizes(torch.ones(num_clients).double() if samples is None else samples.double())
    return CooperationModel(sizes, UpdateCosine(alpha), Aggregate(lam), e_step=ProjectedGradient(0.5, "simplex"))
