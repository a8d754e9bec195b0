"""Peers: which candidate senders each receiver looks at this round, as a (K, M) table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from scool_ppl.arguments import check_whole, finite, whole
from scool_ppl.errors import InputError, unknown

if TYPE_CHECKING:
    from scool_ppl.turn import Turn

JOINED = "global/joined"
"""Entry of the memory: the round, counted from 0, before which clients joined or left so that all are looked at anew."""


class Peers(NamedTuple):
    """The table of candidate senders per receiver.

    mask: (K, M) bool, True where the pair (receiver row, sender column) takes part.
    senders: (K, M) long, the client in each column of each row; None means column m is client m (M = K).
    looked: (K, M) bool, the pairs of `mask` that are looked at anew this round; None means all. What is known of the
    others comes from the rounds before.
    """

    mask: Tensor
    senders: Tensor | None = None
    looked: Tensor | None = None

    @property
    def fresh(self) -> Peers:
        """The same table with only the pairs that are looked at this round."""
        return self if self.looked is None else Peers(self.mask & self.looked, self.senders)

    @property
    def num_clients(self) -> int:
        return int(self.mask.shape[0])

    @classmethod
    def everybody(cls, num_clients: int, includes_self: bool = False) -> Peers:
        """Every client is a candidate for every other (and for itself if asked)."""
        mask = torch.ones(num_clients, num_clients, dtype=torch.bool)
        return cls(mask if includes_self else mask.fill_diagonal_(False))

    def columns(self) -> Tensor:
        """The sender in each column, (1, K) or (K, M)."""
        return torch.arange(self.mask.shape[1])[None] if self.senders is None else self.senders

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

    def distance(self, own: Tensor, theirs: Tensor, norm: float = 2.0) -> Tensor:
        """|theirs_j - own_i| of each receiver i and candidate j, rows (K, P) -> (K, M) float64, masked or not.

        A table goes column by column, so that memory stays at one copy of the rows.
        """
        if self.senders is None:
            return torch.cdist(own.double(), theirs.double(), p=norm)
        columns = [
            torch.linalg.vector_norm((theirs[c] - own).double(), norm, dim=1) for c in self.senders.T.to(own.device)
        ]
        return torch.stack(columns, 1)


class PeerPolicy(Protocol):
    """Chooses the candidates of a round from where it stands; what it must remember goes into `turn.memory`."""

    def __call__(self, turn: Turn) -> Peers: ...


@dataclass(frozen=True)
class All:
    """Everybody looks at everybody, every round."""

    def __call__(self, turn: Turn) -> Peers:
        return turn.peers if turn.peers is not None else Peers.everybody(turn.num_clients, turn.includes_self)


@dataclass(frozen=True)
class Top:
    """Everybody for the first `after` rounds, from then on only the `keep` heaviest senders of each receiver, and the
    receiver itself where it may choose itself. After clients have joined it begins again.

    The communication saver of SCooL (C.1: 90 % dropped after 10 rounds) and L2C (T_0, K_0).
    """

    keep: int
    after: int = 10

    def __post_init__(self) -> None:
        if not whole(self.keep) or not whole(self.after, least=0):
            raise InputError(f"Top(keep={self.keep}, after={self.after}): expected keep >= 1 and after >= 0")

    def __call__(self, turn: Turn) -> Peers:
        previous = turn.peers
        if previous is None or turn.weights is None:
            return Peers.everybody(turn.num_clients, turn.includes_self)
        kept = self.keep + turn.includes_self
        since = int(turn.memory.get(JOINED, torch.zeros(())))
        if turn.round - since < self.after or previous.mask.shape[1] <= kept:
            return previous
        own = (previous.columns() == torch.arange(turn.num_clients)[:, None]) & previous.mask
        weights = turn.weights.masked_fill(~previous.mask, -torch.inf).masked_fill(own, torch.inf)
        ranked = weights.topk(kept, dim=1).indices
        ranked = ranked.sort(dim=1).values
        senders = ranked if previous.senders is None else previous.senders.gather(1, ranked)
        return Peers(previous.mask.gather(1, ranked), senders)


@dataclass(frozen=True)
class EpsilonGreedy:
    """Each receiver looks at `count` senders: with probability epsilon each a random one, else the best so far.

    What is best is the affinity, `memory["affinity"]` (K, K), the sum of the graph's weights over the rounds (FedFomo),
    or with `accumulate=False` the last weights (FedeRiCo). epsilon falls by `decay` a round. A receiver that may choose
    itself always looks at itself. Pairs looked at in earlier rounds stay in the graph if `remember`.
    """

    count: int = 3
    epsilon: float = 0.3
    decay: float = 0.0
    accumulate: bool = True
    remember: bool = False

    def __post_init__(self) -> None:
        if not whole(self.count) or not 0 <= self.epsilon <= 1 or not (finite(self.decay) and self.decay >= 0):
            raise InputError(
                f"EpsilonGreedy(count={self.count}, epsilon={self.epsilon}, decay={self.decay}): "
                "expected a count of at least 1, epsilon in [0, 1] and a decay of at least 0"
            )

    def __call__(self, turn: Turn) -> Peers:
        size = turn.num_clients
        candidates = ~torch.eye(size, dtype=torch.bool)
        affinity = turn.memory.get("affinity", torch.zeros(size, size, dtype=torch.float64)).nan_to_num(0)
        if turn.weights is not None and turn.peers is not None and turn.round > 0:
            last = turn.peers.dense(turn.weights.double())
            affinity = affinity + last if self.accumulate else last
        turn.memory["affinity"] = affinity
        random = turn.generator("peers")
        luck = torch.rand(size, size, generator=random, dtype=torch.float64)
        # Ties, as in the first round, are broken at random.
        best = (affinity + 1e-9 * luck).masked_fill(~candidates, -torch.inf).argsort(1, descending=True)
        chance = torch.rand(size, size, generator=random).masked_fill(~candidates, -1).argsort(1, descending=True)
        count = min(self.count, size - 1)
        explores = torch.rand(size, count, generator=random) < self.epsilon - self.decay * turn.round
        looked = torch.zeros(size, size, dtype=torch.bool)
        exploiting = count - explores.sum(1)
        rank = torch.arange(size)
        looked.scatter_(1, best, (rank < exploiting[:, None]) & candidates.gather(1, best))
        # Explorers take the first of a random order that the best have not taken.
        order = (looked.gather(1, chance) | ~candidates.gather(1, chance)).double().argsort(dim=1, stable=True)
        free = chance.gather(1, order)
        looked |= torch.zeros_like(looked).scatter_(1, free, rank < explores.sum(1)[:, None])
        looked &= candidates
        if turn.includes_self:
            looked |= torch.eye(size, dtype=torch.bool)
        if not self.remember:
            return Peers(looked)
        mask = looked if turn.peers is None else looked | turn.peers.mask
        return Peers(mask, None, looked)


@dataclass(frozen=True)
class RandomPairs:
    """Unordered pairs are looked at at random, each with probability 1/K, 1/t, or mixed (CoBo): 1/K in the first
    `warmup` rounds, then 1/t; t counts the rounds from 1. All pairs keep the weight they last had.
    """

    schedule: Literal["clients", "time", "mixed"] = "mixed"
    warmup: int = 10

    def __post_init__(self) -> None:
        if self.schedule not in ("clients", "time", "mixed"):
            raise unknown("schedule", str(self.schedule), ("clients", "time", "mixed"))
        check_whole("warmup of RandomPairs", self.warmup, least=0)

    def probability(self, num_clients: int, round: int) -> float:
        """Of one pair, in a round counted from 0."""
        by_time = self.schedule == "time" or (self.schedule == "mixed" and round >= self.warmup)
        return 1 / (round + 1) if by_time else 1 / num_clients

    def __call__(self, turn: Turn) -> Peers:
        size = turn.num_clients
        luck = torch.rand(size, size, generator=turn.generator("peers"), dtype=torch.float64).triu(1)
        chosen = (luck < self.probability(size, turn.round)) & torch.ones(size, size, dtype=torch.bool).triu(1)
        return Peers.everybody(size)._replace(looked=chosen | chosen.T)
