"""Mixing rules: how E_q[Y] and the trained networks become the next networks (the M-step's cooperation term)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from scool_ppl.arguments import positive
from scool_ppl.batches import Batches, Params, shared
from scool_ppl.batches import Pull as Proximal
from scool_ppl.candidates import Peers
from scool_ppl.errors import InputError
from scool_ppl.turn import Turn


class Terms(NamedTuple):
    """What a mixing rule adds to local training: a pull on every step, or other batches than the client's own."""

    pull: Proximal | None = None
    batches: Batches | None = None


class Mixing:
    """A rule acts after training (`__call__`), during it (`during`), or both; by default neither does anything."""

    def during(self, turn: Turn) -> Terms:
        """What is added to local training in the round that begins."""
        return Terms()

    def __call__(self, before: Params, trained: Params, weights: Tensor, peers: Peers) -> Params:
        """theta^{t+1} from theta^t (`before`), theta^{t+1/2} (`trained`) and the weights w = E_q[Y] (K, M)."""
        return trained

    def predictors(self, weights: Tensor, peers: Peers) -> tuple[Tensor, Peers] | None:
        """The mixture that a client predicts with, None where it predicts with its own network alone."""
        return None


@dataclass(frozen=True)
class Alone(Mixing):
    """theta_i^{t+1} = theta_i^{t+1/2}: nobody uses anybody's network (case 1.1)."""


@dataclass(frozen=True)
class MixUpdates(Mixing):
    """theta_i^{t+1} = theta_i^t + sum_j wbar_ij (theta_j^{t+1/2} - theta_j^t), wbar = (w + I) with rows normalised.

    The cross-gradient of case 1.2 with grad L(D_j; theta_i) taken at theta_j instead (SCooL (33)). Where the graph has
    self edges already (`includes_self` priors), no identity is added.

    With `clip` tau no sender moves a receiver by more than wbar_ij tau away from its own update: self-centred clipping
    (He, Karimireddy and Jaggi, 2022), theta_i^t + Delta_i + sum_j wbar_ij c_ij (Delta_j - Delta_i) with
    c_ij = min(1, tau / |Delta_j - Delta_i|), the norm taken over the whole network.
    """

    clip: float | None = None

    def __post_init__(self) -> None:
        if self.clip is not None and not positive(self.clip):
            raise InputError(f"MixUpdates has clip={self.clip}, expected a positive radius, or none")

    def __call__(self, before: Params, trained: Params, weights: Tensor, peers: Peers) -> Params:
        others, own = normalised(weights, peers)
        updates = {name: trained[name] - value for name, value in before.items()}
        if self.clip is not None:
            others = others * self._factor(updates, peers, self.clip).to(others)
            own = 1 - torch.where(peers.mask, others, torch.zeros_like(others)).sum(1)
        return {
            name: value + peers.combine(others, updates[name]) + _per_client(own, value) * updates[name]
            for name, value in before.items()
        }

    @staticmethod
    def _factor(updates: Params, peers: Peers, radius: float) -> Tensor:
        """min(1, radius / |Delta_j - Delta_i|), (K, M); 0 where an update is not finite."""
        flat = torch.cat([value.reshape(len(value), -1) for value in updates.values()], 1)
        distance = peers.distance(flat, flat).cpu()
        return torch.where(distance > radius, radius / distance, torch.ones_like(distance)).where(
            distance.isfinite(), 0
        )


@dataclass(frozen=True)
class MixModels(Mixing):
    """theta_i^{t+1} = base_i + sum_j w_ij (theta_j^{t+1/2} - base_i), base the network before or after training.

    Where the rows of w sum to one the base cancels: a plain average of networks (FedAvg). Rows are used as they are.
    """

    base: Literal["before", "trained"] = "trained"

    def __post_init__(self) -> None:
        if self.base not in ("before", "trained"):
            raise InputError(f"MixModels has base='{self.base}', expected 'before' or 'trained'")

    def __call__(self, before: Params, trained: Params, weights: Tensor, peers: Peers) -> Params:
        weights = torch.where(peers.mask, weights, torch.zeros_like(weights))
        left = 1 - weights.sum(1)
        bases = before if self.base == "before" else trained
        return {
            name: _per_client(left, base) * base + peers.combine(weights, trained[name]) for name, base in bases.items()
        }


@dataclass(frozen=True)
class Pull(Mixing):
    """Adds strength * sum_j w_ij (theta_i - theta_j) to the gradient at every local step (case 2.1: CoBo, D-PSGD, Dada).

    theta_j is the sender's network at the beginning of the round. The gradient of (strength / 2) sum_j w_ij
    |theta_i - theta_j|^2 for a symmetric w. With `local_steps=1` this is the papers' update, one step a round.
    """

    strength: float = 1.0

    def __post_init__(self) -> None:
        if not positive(self.strength):
            raise InputError(f"Pull has strength={self.strength}, expected a positive number")

    def during(self, turn: Turn) -> Terms:
        if turn.weights is None or turn.peers is None:
            return Terms()
        weights = torch.where(turn.peers.mask, turn.weights, torch.zeros_like(turn.weights))
        total = weights.sum(1)
        share = weights / total.clamp(min=1e-30)[:, None]
        centre = {name: turn.peers.combine(share, value) for name, value in turn.params.items()}
        first = next(iter(centre.values()))
        return Terms(pull=Proximal(centre, (self.strength * total).to(first)))


@dataclass(frozen=True)
class ShareData(Mixing):
    """Every step descends L(D_i; theta_i) + sum_j w_ij L(D_j; theta_i) (case 1.2 exactly, SCooL (22)): neighbours'
    batches join the client's own, weighted by w; or with `exact=False` one neighbour's, drawn with probability w_ij /
    sum_l w_il and weighted by sum_l w_il, which is the same on average. The prior of theta is the weight decay.
    """

    exact: bool = True

    def during(self, turn: Turn) -> Terms:
        if turn.weights is None or turn.peers is None:
            return Terms()
        weights = turn.peers.dense(turn.weights.double()).fill_diagonal_(0)
        own = torch.ones(turn.num_clients, dtype=torch.float64)
        sampled = None if self.exact else turn.generator("share")
        return Terms(batches=shared(turn.batches(), weights, own, sampled))


@dataclass(frozen=True)
class ServeUsers(Mixing):
    """Every step descends sum_j w_ji L(D_j; theta_i): network i is trained by those who use it (FedeRiCo's M-step).

    Note the transposed weights. Before the first graph each network serves its own client. Predictions are mixtures,
    sum_j w_ij h_theta_j(x).
    """

    def predictors(self, weights: Tensor, peers: Peers) -> tuple[Tensor, Peers]:
        return weights, peers

    def during(self, turn: Turn) -> Terms:
        if turn.weights is None or turn.peers is None:
            return Terms()
        weights = turn.peers.dense(turn.weights.double()).T
        return Terms(batches=shared(turn.batches(), weights.clone().fill_diagonal_(0), weights.diagonal().clone()))


def normalised(weights: Tensor, peers: Peers) -> tuple[Tensor, Tensor]:
    """(w + I) / row sums as (weights (K, M) of the candidates, weight (K,) of the client itself).

    A client that already chose itself among its candidates is not added again; one without any weight keeps to itself.
    """
    weights = torch.where(peers.mask, weights, torch.zeros_like(weights))
    own = torch.ones(peers.num_clients, dtype=weights.dtype)
    chose_self = peers.own().any(1)
    own = torch.where(chose_self & (weights.sum(1) > 0), torch.zeros_like(own), own)
    total = weights.sum(1) + own
    return weights / total[:, None], own / total


def _per_client(values: Tensor, like: Tensor) -> Tensor:
    return values.to(like).view(-1, *[1] * (like.dim() - 1))
