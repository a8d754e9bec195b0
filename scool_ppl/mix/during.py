"""Mixing rules that act during local training: a pull towards others, or a share in their data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scool_ppl.base.arguments import positive, whole
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.mix.base import Mixing, Terms
from scool_ppl.train.contract import Coupling, Shares
from scool_ppl.train.round_start import RoundStart


@dataclass(frozen=True)
class Pull(Mixing):
    """Adds strength * sum_j w_ij (theta_i - theta_j) to the gradient at every local step (case 2.1: CoBo, D-PSGD, Dada).

    theta_j is the sender's network at the same step, see `train.Coupling`: what the papers do once a round is done at each
    of its steps, with the round's w. The gradient of (strength / 2) sum_j w_ij |theta_i - theta_j|^2 for a symmetric w. It
    begins with round `since`, counted from 0: where the first graph is found by a look, there is none to follow before.
    With `by_degree` it is divided by sum_j w_ij: a pull towards the neighbours' mean, whatever the scale of w.
    """

    demands = ("lock step",)
    strength: float = 1.0
    since: int = 0
    by_degree: bool = False

    def __post_init__(self) -> None:
        if not positive(self.strength) or not whole(self.since, least=0):
            raise InputError(
                f"Pull(strength={self.strength}, since={self.since}): expected a positive number and a round of at least 0"
            )

    def during(self, start: RoundStart) -> Terms:
        if start.graph is None or start.round < self.since:
            return Terms()
        weights, peers = start.graph
        weights = torch.where(peers.mask, weights, torch.zeros_like(weights))
        if self.by_degree:
            weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-30)
        return Terms(pull=Coupling(self.strength * weights, peers))


@dataclass(frozen=True)
class ShareData(Mixing):
    """Every step descends L(D_i; theta_i) + sum_j w_ij L(D_j; theta_i) (case 1.2 exactly, SCooL (22)): neighbours'
    batches join the client's own, weighted by w; or with `exact=False` one neighbour's, drawn with probability w_ij /
    sum_l w_il and weighted by sum_l w_il, which is the same on average. The prior of theta is the weight decay.
    """

    demands = ("others' data",)
    exact: bool = True

    def during(self, start: RoundStart) -> Terms:
        if start.graph is None:
            return Terms()
        weights, peers = start.graph
        weights = peers.dense(weights.double()).fill_diagonal_(0)
        own = torch.ones(start.num_clients, dtype=torch.float64)
        return Terms(shares=Shares(weights, own, sampled=not self.exact))


@dataclass(frozen=True)
class ServeUsers(Mixing):
    """Every step descends sum_j w_ji L(D_j; theta_i): network i is trained by those who use it (FedeRiCo's M-step).

    Note the transposed weights. Before the first graph each network serves its own client. Predictions are mixtures,
    sum_j w_ij h_theta_j(x).
    """

    demands = ("others' data", "mixtures")

    def predictors(self, weights: Tensor, peers: Peers) -> tuple[Tensor, Peers]:
        return weights, peers

    def during(self, start: RoundStart) -> Terms:
        if start.graph is None:
            return Terms()
        weights, peers = start.graph
        weights = peers.dense(weights.double()).T
        return Terms(shares=Shares(weights.clone().fill_diagonal_(0), weights.diagonal().clone()))
