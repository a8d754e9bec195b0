"""Dada: networks and graph lower one objective, by turns (Zantedeschi, Bellet and Tommasi, 2020).

    J(theta, w) = sum_k d_k c_k L_k(theta_k) + mu1 / 2 sum_{k<l} w_kl |theta_k - theta_l|^2 + mu2 g(w),  w_kl = w_lk
    g(w) = sparsity sum_{k<l} w_kl^2 - sum_k log(d_k + 0.01),  d_k = sum_l w_kl,  c_k = n_k / max_l n_l
    theta_k <- theta_k - eta / d_k dJ / dtheta_k at every local step,  w <- clip(w - step dJ / dw, 0, 1)

q(Y) is a point mass, exp(-J) the joint density. The rate is eta / d_k so that w's scale does not change it. The paper's
models are sums of base classifiers, moved by Frank-Wolfe; its w may exceed 1. Values: chosen as models/README.md says.
"""

import pyro
import torch
from torch import Tensor

from scool_ppl import CooperationModel, Evidence, InputError, ProjectedGradient
from scool_ppl.infer.priors import Box
from scool_ppl.look import Distance, Ignored
from scool_ppl.mix import Mixing, Pull, Terms
from scool_ppl.train import RoundStart, Shares


class Objective(Box):
    """The density exp(-J) of w; an edge w_kl is the mean of its two directions."""

    needs = ("own_loss", Distance(trained=True))

    def __init__(self, confidence: Tensor, *weights: float) -> None:
        super().__init__(len(confidence))
        self.confidence, (self.mu1, self.mu2, self.sparsity) = confidence, weights
        if min(weights) <= 0:
            raise InputError("mu1={}, mu2={}, sparsity={}: expected positive numbers".format(*weights))

    def model(self, evidence: Evidence) -> Tensor:
        graph, far = super().model(evidence), evidence.distance(trained=True).square().clamp(max=1e9)
        half, far = (torch.where(evidence.peers.mask, pairs, 0.0) for pairs in (graph / 2, far))
        w = half + half.T
        loss = (w.sum(1) * self.confidence * evidence.own_loss).sum() + self.mu1 / 2 * (w * far).sum() / 2
        pyro.factor("J", self.mu2 * ((w.sum(1) + 0.01).log().sum() - self.sparsity / 2 * w.square().sum()) - loss)
        return graph


class Weighted(Mixing):  # c_k grad L_k + mu1 / d_k sum_l w_kl (theta_k - theta_l), where there is a graph
    def __init__(self, mu1: float, confidence: Tensor) -> None:
        self.pull, self.confidence = Pull(mu1, since=1, by_degree=True), confidence
        self.unequal = bool((confidence < 1).any())
        self.demands = ("lock step", "others' data") if self.unequal else ("lock step",)

    def during(self, start: RoundStart) -> Terms:
        nobody = torch.zeros(start.num_clients, start.num_clients)
        shares = Shares(nobody, self.confidence) if self.unequal else None
        return Terms(self.pull.during(start).pull, shares)


def build(
    num_clients: int, mu1: float = 2.0, mu2: float = 1.0, sparsity: float = 10.0, samples: Tensor | None = None
) -> CooperationModel:
    """`mu1`: weight of the distances. `mu2`: of g(w). `sparsity`: of |w|^2 in it. `samples`: n_k, from the federation."""
    confidence = torch.ones(num_clients).double() if samples is None else samples.double() / samples.max()
    prior, mixing = Objective(confidence, mu1, mu2, sparsity), Weighted(mu1, confidence)
    return CooperationModel(prior, Ignored(), mixing, e_step=ProjectedGradient(0.05, steps=50))
