"""Mixing rules: how E_q[Y] and the trained networks become the next networks (the M-step's cooperation term)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from scool_ppl.batches import Params
from scool_ppl.errors import InputError
from scool_ppl.peers import Peers


class Mixing(Protocol):
    """theta^{t+1} from theta^t (`before`), theta^{t+1/2} (`trained`) and the graph's weights w = E_q[Y] (K, M)."""

    def __call__(self, before: Params, trained: Params, weights: Tensor, peers: Peers) -> Params: ...


@dataclass(frozen=True)
class Alone:
    """theta_i^{t+1} = theta_i^{t+1/2}: nobody uses anybody's network (case 1.1)."""

    def __call__(self, before: Params, trained: Params, weights: Tensor, peers: Peers) -> Params:
        return trained


@dataclass(frozen=True)
class MixUpdates:
    """theta_i^{t+1} = theta_i^t + sum_j wbar_ij (theta_j^{t+1/2} - theta_j^t), wbar = (w + I) with rows normalised.

    The cross-gradient of case 1.2 with grad L(D_j; theta_i) taken at theta_j instead (SCooL (33)). Where the graph has
    self edges already (`includes_self` priors), no identity is added.
    """

    def __call__(self, before: Params, trained: Params, weights: Tensor, peers: Peers) -> Params:
        others, own = normalised(weights, peers)
        mixed = {}
        for name, value in before.items():
            update = trained[name] - value
            mixed[name] = value + peers.combine(others, update) + _per_client(own, update) * update
        return mixed


@dataclass(frozen=True)
class MixModels:
    """theta_i^{t+1} = base_i + sum_j w_ij (theta_j^{t+1/2} - base_i), base the network before or after training.

    Where the rows of w sum to one the base cancels: a plain average of networks (FedAvg). Rows are used as they are
    unless `normalise`, which adds the client itself as MixUpdates does.
    """

    base: Literal["before", "trained"] = "trained"
    normalise: bool = False

    def __post_init__(self) -> None:
        if self.base not in ("before", "trained"):
            raise InputError(f"MixModels has base='{self.base}', expected 'before' or 'trained'")

    def __call__(self, before: Params, trained: Params, weights: Tensor, peers: Peers) -> Params:
        weights = torch.where(peers.mask, weights, torch.zeros_like(weights))
        own = torch.zeros(peers.num_clients, dtype=weights.dtype)
        if self.normalise:
            weights, own = normalised(weights, peers)
        left = 1 - own - weights.sum(1)
        mixed = {}
        for name, base in (before if self.base == "before" else trained).items():
            kept = _per_client(left, base) * base + _per_client(own, base) * trained[name]
            mixed[name] = kept + peers.combine(weights, trained[name])
        return mixed


def normalised(weights: Tensor, peers: Peers) -> tuple[Tensor, Tensor]:
    """(w + I) / row sums as (weights (K, M) of the candidates, weight (K,) of the client itself).

    A client that already chose itself among its candidates is not added again; one without any weight keeps to itself.
    """
    weights = torch.where(peers.mask, weights, torch.zeros_like(weights))
    own = torch.ones(peers.num_clients, dtype=weights.dtype)
    clients = torch.arange(peers.num_clients)[:, None]
    columns = clients.T if peers.senders is None else peers.senders
    chose_self = ((columns == clients) & peers.mask).any(1)
    own = torch.where(chose_self & (weights.sum(1) > 0), torch.zeros_like(own), own)
    total = weights.sum(1) + own
    return weights / total[:, None], own / total


def _per_client(values: Tensor, like: Tensor) -> Tensor:
    return values.to(like).view(-1, *[1] * (like.dim() - 1))
