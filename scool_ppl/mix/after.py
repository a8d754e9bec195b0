"""Mixing rules that make the next networks of those that local training has come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from scool_ppl.base.arguments import positive
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.stacks import is_shared, per_client
from scool_ppl.mix.base import Mixing, Terms, check_samples, of_these
from scool_ppl.train.contract import Pull as Proximal
from scool_ppl.train.questions import Params
from scool_ppl.train.round_start import RoundStart

_AT_ONCE = 2**20
"""Elements of a stack that are mixed together."""


@dataclass(frozen=True)
class MixUpdates(Mixing):
    """theta_i^{t+1} = theta_i^t + sum_j wbar_ij (theta_j^{t+1/2} - theta_j^t).

    wbar_ij = n_j (w_ij + [i = j]) / sum_l n_l (w_il + [i = l]): the cross-gradient of case 1.2 with grad L(D_j; .)
    taken at theta_j instead of theta_i (SCooL (33)). Where the graph has self edges already (`includes_self` priors),
    no identity is added.

    samples: n_j, the number of training images of each client (K,); None counts all clients alike, n_j = 1. A client
    that learns from everybody, w_ij = 1, gives them the weights of FedAvg.

    With `clip` tau no sender moves a receiver by more than wbar_ij tau away from its own update: self-centred clipping
    (He, Karimireddy and Jaggi, 2022), theta_i^t + Delta_i + sum_j wbar_ij c_ij (Delta_j - Delta_i) with
    c_ij = min(1, tau / |Delta_j - Delta_i|), the norm taken over the whole network.
    """

    clip: float | None = None
    samples: Tensor | None = None

    def __post_init__(self) -> None:
        if self.clip is not None and not positive(self.clip):
            raise InputError(f"MixUpdates has clip={self.clip}, expected a positive radius, or none")
        check_samples(self, self.samples)

    def __call__(self, before: Params, trained: Params, weights: Tensor, peers: Peers) -> Params:
        others, own = normalised(weights, peers, self.samples)
        if self.clip is not None:
            others = others * self._factor(before, trained, peers, self.clip).to(others)
            own = 1 - torch.where(peers.mask, others, torch.zeros_like(others)).sum(1)
        return {name: _moved(value, trained[name], others, own, peers) for name, value in before.items()}

    @staticmethod
    def _factor(before: Params, trained: Params, peers: Peers, radius: float) -> Tensor:
        """min(1, radius / |Delta_j - Delta_i|), (K, M); 0 where an update is not finite."""
        flat = torch.cat([(trained[name] - value).reshape(len(value), -1) for name, value in before.items()], 1)
        distance = peers.distance(_own(flat, peers), flat).cpu()
        return torch.where(distance > radius, radius / distance, torch.ones_like(distance)).where(
            distance.isfinite(), 0
        )


@dataclass(frozen=True)
class MixModels(Mixing):
    """theta_i^{t+1} = base_i + sum_j w_ij (theta_j^{t+1/2} - base_i), base the network before or after training.

    Where the rows of w sum to one the base cancels: a plain average of networks (FedAvg). Rows are used as they are.

    With `pull` mu every local step of the next round is pulled back to where the round began, which adds
    mu (theta_i - theta_i^t) to the gradient: that of mu / 2 |theta_i - theta_i^t|^2 (FedProx).
    """

    base: Literal["before", "trained"] = "trained"
    pull: float = 0.0

    def __post_init__(self) -> None:
        if self.base not in ("before", "trained"):
            raise InputError(f"MixModels has base='{self.base}', expected 'before' or 'trained'")
        if self.pull and not positive(self.pull):
            raise InputError(f"MixModels has pull={self.pull}, expected a positive number, or 0 for none")

    def during(self, start: RoundStart) -> Terms:
        if not self.pull:
            return Terms()
        first = next(iter(start.params.values()))
        return Terms(Proximal(start.params, first.new_full((start.num_clients,), self.pull)))

    def __call__(self, before: Params, trained: Params, weights: Tensor, peers: Peers) -> Params:
        weights = torch.where(peers.mask, weights, torch.zeros_like(weights))
        left = 1 - weights.sum(1)
        bases = before if self.base == "before" else trained
        return {
            name: per_client(left.to(base), base) * _own(base, peers) + peers.combine(weights, trained[name])
            for name, base in bases.items()
        }


def _moved(before: Tensor, trained: Tensor, others: Tensor, own: Tensor, peers: Peers) -> Tensor:
    """before_i + sum_j others_ij Delta_j + own_i Delta_i of one parameter; of a large one some columns at a time, as its
    stack of all clients is what memory is full of.
    """
    columns = max(1, _AT_ONCE // len(before))
    if not is_shared(before) and before[0].numel() > columns:
        flat = [value.reshape(len(value), -1).split(columns, 1) for value in (before, trained)]
        mixed = before.new_empty(_own(before, peers).shape)
        for place, start, end in zip(mixed.view(len(mixed), -1).split(columns, 1), *flat, strict=True):
            place.copy_(_moved(start, end, others, own, peers))
        return mixed
    update = trained - before
    return (
        _own(before, peers) + peers.combine(others, update) + per_client(own.to(before), before) * _own(update, peers)
    )


def normalised(weights: Tensor, peers: Peers, samples: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """n_j (w + I)_ij / row sums as (weights (K, M) of the candidates, weight (K,) of the client itself).

    samples: the n_j (K,), all 1 if None. A client that already chose itself among its candidates is not added again;
    one without any weight keeps to itself.
    """
    weights = torch.where(peers.mask, weights, torch.zeros_like(weights))
    own = torch.ones(peers.num_clients, dtype=weights.dtype)
    if samples is not None:
        own = of_these(samples, peers.num_clients).to(weights)
        weights = weights * peers.gather(own)
    chose_self = peers.own().any(1)
    own = torch.where(chose_self & (weights.sum(1) > 0), torch.zeros_like(own), own)
    total = weights.sum(1) + own
    return weights / total[:, None], own / total


def _own(networks: Tensor, peers: Peers) -> Tensor:
    """Those of the clients, without the components behind them."""
    return networks[: peers.num_clients]
