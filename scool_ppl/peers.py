"""Peers: which candidate senders each receiver looks at this round, as a (K, M) table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from scool_ppl.errors import InputError


class Peers(NamedTuple):
    """The table of candidate senders per receiver.

    mask: (K, M) bool, True where the pair (receiver row, sender column) is looked at.
    senders: (K, M) long, the client in each column of each row; None means column m is client m (M = K).
    """

    mask: Tensor
    senders: Tensor | None = None

    @property
    def num_clients(self) -> int:
        return int(self.mask.shape[0])

    @classmethod
    def everybody(cls, num_clients: int, includes_self: bool = False) -> Peers:
        """Every client is a candidate for every other (and for itself if asked)."""
        mask = torch.ones(num_clients, num_clients, dtype=torch.bool)
        return cls(mask if includes_self else mask.fill_diagonal_(False))

    def gather(self, x: Tensor) -> Tensor:
        """Rows of x (K, ...) seen by each receiver: (1, K, ...) for everybody, else (K, M, ...)."""
        return x.unsqueeze(0) if self.senders is None else x[self.senders]

    def take(self, matrix: Tensor) -> Tensor:
        """Entries of a (K, K) matrix at the candidates: (K, M)."""
        return matrix if self.senders is None else matrix.gather(1, self.senders)

    def dense(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """A (K, M) table as a (K, K) matrix; pairs that are not candidates get `fill`."""
        values = torch.where(self.mask, values, torch.as_tensor(fill, dtype=values.dtype))
        if self.senders is None:
            return values
        out = torch.full((self.num_clients, self.num_clients), fill, dtype=values.dtype)
        rows, columns = self.mask.nonzero(as_tuple=True)
        out[rows, self.senders[rows, columns]] = values[rows, columns]
        return out

    def combine(self, weights: Tensor, x: Tensor) -> Tensor:
        """sum_j weights[i, j] x[j] over each receiver's candidates, for x (K, ...) -> (K, ...).

        A table is summed column by column, so that memory stays at one copy of x.
        """
        weights = torch.where(self.mask, weights, torch.zeros_like(weights)).to(x)
        flat = x.reshape(len(x), -1)
        broken = ~flat.isfinite().all(1)
        if bool(broken.any()):  # 0 * nan is nan: what broke reaches only those who give it weight
            out = self.combine(weights, flat.masked_fill(broken[:, None], 0))
            out[self.combine(weights.ne(0).to(x), broken.to(x)) > 0] = torch.nan
            return out.view_as(x)
        if self.senders is None:
            return (weights @ flat).view_as(x)
        out = torch.zeros_like(flat)
        for column in range(weights.shape[1]):
            out += weights[:, column, None] * flat[self.senders[:, column].to(x.device)]
        return out.view_as(x)


class PeerPolicy(Protocol):
    """Chooses the candidates of a round from the graph of the round before."""

    def __call__(
        self, previous: Peers | None, weights: Tensor | None, *, num_clients: int, includes_self: bool, round: int
    ) -> Peers: ...


@dataclass(frozen=True)
class All:
    """Everybody looks at everybody, every round."""

    def __call__(
        self, previous: Peers | None, weights: Tensor | None, *, num_clients: int, includes_self: bool, round: int
    ) -> Peers:
        return previous if previous is not None else Peers.everybody(num_clients, includes_self)


@dataclass(frozen=True)
class Top:
    """Everybody for the first `after` rounds, from then on only the `keep` heaviest senders of each receiver.

    The communication saver of SCooL (C.1: 90 % dropped after 10 rounds) and L2C (T_0, K_0).
    """

    keep: int
    after: int = 10

    def __post_init__(self) -> None:
        if self.keep < 1 or self.after < 0:
            raise InputError(f"Top(keep={self.keep}, after={self.after}): expected keep >= 1 and after >= 0")

    def __call__(
        self, previous: Peers | None, weights: Tensor | None, *, num_clients: int, includes_self: bool, round: int
    ) -> Peers:
        if previous is None or weights is None:
            return Peers.everybody(num_clients, includes_self)
        if round < self.after or previous.mask.shape[1] <= self.keep:
            return previous
        ranked = weights.masked_fill(~previous.mask, -torch.inf).topk(self.keep, dim=1).indices
        ranked = ranked.sort(dim=1).values
        senders = ranked if previous.senders is None else previous.senders.gather(1, ranked)
        return Peers(previous.mask.gather(1, ranked), senders)
