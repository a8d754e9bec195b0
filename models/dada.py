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

from scool_ppl import CooperationModel, InputError, ProjectedGradient
from scool_ppl.infer.priors import Box
from scool_ppl.look import Distance, Ignored
from scool_ppl.mix import Mixing, Pull, Terms
from scool_ppl.train import Shares


class Objective(Box):
    """The density exp(-J) of w; an edge w_kl is the mean of its two directions."""

    needs = ("own_loss", Distance(trained=True))

    def __init__(self, confidence: Tensor, *weights: float) -> None:
        super().__init__(len(confidence))
        self.confidence, self.weights = confidence, weights
        if min(weights) <= 0:
            raise InputError("mu1, mu2, sparsity are {}, {}, {}: expected positive numbers".format(*weights))

    def model(self, evidence):
        graph, (mu1, mu2, sparsity) = super().model(evidence), self.weights
        mask, far = evidence.peers.mask, evidence.distance(trained=True).square().clamp(max=1e9)
        w, far = torch.where(mask, (graph + graph.T) / 2, 0.0), torch.where(mask, far, 0.0)
        loss = (w.sum(1) * self.confidence * evidence.own_loss).sum() + mu1 / 2 * (w * far).sum() / 2
        pyro.factor("J", mu2 * (w.sum(1) + 0.01).log().sum() - mu2 * sparsity / 2 * w.square().sum() - loss)
        return graph


class ByDegree(Mixing):  # c_k grad L_k + mu1 / d_k sum_l w_kl (theta_k - theta_l), where there is a graph
    def __init__(self, mu1: float, confidence: Tensor) -> None:
        self.pull, self.confidence = Pull(mu1, since=1), confidence

    def during(self, start):
        pull, nobody = self.pull.during(start).pull, torch.zeros(2 * [start.num_clients])
        if pull is not None:
            degree = torch.where(pull.peers.mask, start.weights, 0.0).sum(1, keepdim=True)
            pull = pull._replace(weights=pull.weights / degree.clamp(min=1e-30))
        return Terms(pull, Shares(nobody, self.confidence) if bool((self.confidence < 1).any()) else None)


def build(
    num_clients: int, mu1: float = 2.0, mu2: float = 1.0, sparsity: float = 10.0, samples: Tensor | None = None
) -> CooperationModel:
    """`mu1`: weight of the distances. `mu2`: of the degrees. `sparsity`: weight of |Y|^2. `samples`: n_k (K,), which the federation supplies."""
    confidence = torch.ones(num_clients).double() if samples is None else samples.double() / samples.max()
    prior, mixing = Objective(confidence, mu1, mu2, sparsity), ByDegree(mu1, confidence)
    return CooperationModel(prior, Ignored(), mixing, e_step=ProjectedGradient(0.05, steps=50))
