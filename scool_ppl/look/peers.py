"""Peer policies: which candidate senders each receiver looks at this round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from scool_ppl.base.arguments import check_whole, finite, whole
from scool_ppl.errors import InputError, unknown
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.questions import Params
from scool_ppl.train.round_start import Memory, Remembered, RoundStart

JOINED = "joined"
"""Entry of the memory: the round, counted from 0, before which clients joined or left so that all are looked at anew."""


class PeerPolicy:
    """Chooses the candidates of a round from where it stands when it begins."""

    def __call__(self, start: RoundStart) -> Peers:
        raise InputError(f"{type(self).__name__} has no `__call__`; write one that returns the round's Peers")

    @property
    def reads_last(self) -> bool:
        """Does it choose among the last round's candidates? Then all are candidates anew once clients have joined; a policy
        that does not goes on with its table, in which newcomers have candidates at random.
        """
        return True

    @property
    def begins_again(self) -> bool:
        """Does it count rounds from when clients last joined? Then that round is remembered, `start.recall(JOINED)`."""
        return False

    def once_trained(self, start: RoundStart, trained: Params) -> Peers:
        """The candidates once the clients have trained, for policies that look at where they went."""
        return self(start)

    def to_remember(self, start: RoundStart) -> Memory:
        """What it wants to read next round in `start.memory`."""
        return {}


@dataclass(frozen=True)
class All(PeerPolicy):
    """Everybody looks at everybody, every round."""

    def __call__(self, start: RoundStart) -> Peers:
        return start.peers if start.peers is not None else Peers.everybody(start.num_clients, start.includes_self)


@dataclass(frozen=True)
class Components(PeerPolicy):
    """Everybody looks at every component, and at those clients that another policy chooses, by default at none."""

    clients: PeerPolicy | None = None

    @property
    def reads_last(self) -> bool:
        return self.clients is not None and self.clients.reads_last

    @property
    def begins_again(self) -> bool:
        return self.clients is not None and self.clients.begins_again

    def __call__(self, start: RoundStart) -> Peers:
        return self._beside(start, None if self.clients is None else self.clients(self._of_clients(start)))

    def once_trained(self, start: RoundStart, trained: Params) -> Peers:
        chosen = None if self.clients is None else self.clients.once_trained(self._of_clients(start), trained)
        return self._beside(start, chosen)

    def to_remember(self, start: RoundStart) -> Memory:
        return {} if self.clients is None else self.clients.to_remember(self._of_clients(start))

    @staticmethod
    def _beside(start: RoundStart, chosen: Peers | None) -> Peers:
        components = start.num_components
        if components == 0:
            raise InputError(
                "Components looks at components, the model has none; say how many, components= of the model"
            )
        return (
            Peers.of_components(start.num_clients, components) if chosen is None else chosen.with_components(components)
        )

    @staticmethod
    def _of_clients(start: RoundStart) -> RoundStart:
        """The start as a policy sees it that knows of clients only."""
        if start.graph is None:
            return start
        weights, peers = start.graph
        moments = {name: peers.clients_of(value) if name == "Y" else value for name, value in start.moments.items()}
        return start._replace(peers=peers.without_components(), weights=peers.clients_of(weights), moments=moments)


@dataclass(frozen=True)
class Top(PeerPolicy):
    """Everybody for the first `after` rounds, from then on only the `keep` heaviest senders of each receiver, and the
    receiver itself where it may choose itself. After clients have joined it begins again.

    The communication saver of SCooL (C.1: 90 % dropped after 10 rounds) and L2C (T_0, K_0).
    """

    keep: int
    after: int = 10

    def __post_init__(self) -> None:
        if not whole(self.keep) or not whole(self.after, least=0):
            raise InputError(f"Top(keep={self.keep}, after={self.after}): expected keep >= 1 and after >= 0")

    @property
    def begins_again(self) -> bool:
        return True

    def __call__(self, start: RoundStart) -> Peers:
        if start.graph is None:
            return Peers.everybody(start.num_clients, start.includes_self)
        weights, previous = start.graph
        kept = self.keep + start.includes_self
        joined = start.recall(JOINED)
        since = 0 if joined is None else int(joined)
        if start.round - since < self.after or previous.mask.shape[1] <= kept:
            return previous
        weights = weights.masked_fill(~previous.mask, -torch.inf).masked_fill(previous.own(), torch.inf)
        ranked = weights.topk(kept, dim=1).indices.sort(dim=1).values
        senders = ranked if previous.senders is None else previous.senders.gather(1, ranked)
        return Peers(previous.mask.gather(1, ranked), senders)


@dataclass(frozen=True)
class EpsilonGreedy(PeerPolicy):
    """Each receiver looks at `count` senders: with probability epsilon each a random one, else the best so far.

    What is best is the affinity (K, K), the sum of the graph's weights over the rounds (FedFomo), or with
    `accumulate=False` the last weight of each pair (FedeRiCo). epsilon falls by `decay` a round. A receiver that may
    choose itself always looks at itself. Pairs looked at in earlier rounds stay in the graph if `remember`.
    """

    count: int = 3
    epsilon: float = 0.3
    decay: float = 0.0
    accumulate: bool = True
    remember: bool = False

    def __post_init__(self) -> None:
        shares = finite(self.epsilon, self.decay) and 0 <= self.epsilon <= 1 and self.decay >= 0
        if not whole(self.count) or not shares:
            raise InputError(
                f"EpsilonGreedy(count={self.count}, epsilon={self.epsilon}, decay={self.decay}): "
                "expected a count of at least 1, epsilon in [0, 1] and a decay of at least 0"
            )

    def __call__(self, start: RoundStart) -> Peers:
        size = start.num_clients
        candidates = ~torch.eye(size, dtype=torch.bool)
        affinity = self.affinity(start)
        random = start.generator("peers")
        luck = torch.rand(size, size, generator=random, dtype=torch.float64)
        # Ties, as in the first round, are broken at random.
        best = (affinity + 1e-9 * luck).masked_fill(~candidates, -torch.inf).argsort(1, descending=True)
        chance = torch.rand(size, size, generator=random).masked_fill(~candidates, -1).argsort(1, descending=True)
        count = min(self.count, size - 1)
        explores = torch.rand(size, count, generator=random) < self.epsilon - self.decay * start.round
        looked = torch.zeros(size, size, dtype=torch.bool)
        exploiting = count - explores.sum(1)
        rank = torch.arange(size)
        looked.scatter_(1, best, (rank < exploiting[:, None]) & candidates.gather(1, best))
        # Explorers take the first of a random order that the best have not taken.
        order = (looked.gather(1, chance) | ~candidates.gather(1, chance)).double().argsort(dim=1, stable=True)
        free = chance.gather(1, order)
        looked |= torch.zeros_like(looked).scatter_(1, free, rank < explores.sum(1)[:, None])
        looked &= candidates
        if start.includes_self:
            looked |= torch.eye(size, dtype=torch.bool)
        if not self.remember:
            return Peers(looked)
        mask = looked if start.peers is None else looked | start.peers.mask
        return Peers(mask, None, looked)

    def affinity(self, start: RoundStart) -> Tensor:
        """How much each receiver has got of each sender, (K, K)."""
        size, last = start.num_clients, start.recall("affinity")
        affinity = torch.zeros(size, size, dtype=torch.float64) if last is None else last.nan_to_num(0)
        if start.graph is not None and start.round > 0:
            weights, peers = start.graph
            if self.accumulate:  # of pairs that rested nothing new has come
                return affinity + peers.dense(start.moments.get("Y", weights).double())
            affinity = torch.where(peers.dense(peers.mask.double()) > 0, peers.dense(weights.double()), affinity)
        return affinity

    def to_remember(self, start: RoundStart) -> Memory:
        return {"affinity": Remembered(self.affinity(start), (0, 1))}


@dataclass(frozen=True)
class Near(PeerPolicy):
    """Each receiver looks at `keep` senders whose training goes its way, and at `explore` others at random, every round
    anew: tables from the first round, for clients so many that no K x K numbers fit.

    Nearness is the cosine of where the round's training went, the direction of theta^{t+1/2} - theta^t less the mean of
    the clients' directions, in a random projection on `sketch` axes (Johnson and Lindenstrauss: angles are kept to within
    1 / sqrt(sketch)). Explorers connect what the sketch does not. A receiver that may choose itself looks at itself, too.
    """

    keep: int = 24
    explore: int = 8
    sketch: int = 64

    def __post_init__(self) -> None:
        if not whole(self.keep, self.sketch) or not whole(self.explore, least=0):
            raise InputError(
                f"Near(keep={self.keep}, explore={self.explore}, sketch={self.sketch}): expected whole numbers, keep and "
                "sketch at least 1, explore at least 0"
            )

    @property
    def reads_last(self) -> bool:
        return False

    def __call__(self, start: RoundStart) -> Peers:
        raise InputError("Near looks at what training did; call `once_trained(start, trained)`, as the driver does")

    def once_trained(self, start: RoundStart, trained: Params) -> Peers:
        size, random = start.num_clients, start.generator("peers")
        if size - 1 <= self.keep + self.explore:
            return Peers.everybody(size, start.includes_self)
        moved = self.sketched({name: value - start.params[name] for name, value in trained.items()}, start)
        near = nearest(moved, self.keep, start.present)
        senders = torch.cat([near, others_at_random(torch.arange(size), self.explore, size, random)], 1)
        if start.includes_self:
            senders = torch.cat([senders, torch.arange(size)[:, None]], 1)
        return each_once(senders)

    def sketched(self, moved: Params, start: RoundStart) -> Tensor:
        """Unit vectors (K, sketch) whose inner products are about the cosines of the updates."""
        total = torch.zeros(start.num_clients, self.sketch, dtype=torch.float64)
        random = start.generator("sketch")
        for name in sorted(moved):
            flat = moved[name].flatten(1)
            directions = torch.randn(flat.shape[1], self.sketch, generator=random)
            total += (flat @ directions.to(flat)).cpu().double().nan_to_num(0, 0, 0)
        # Every client counts the same in the mean, however far it went, and who is absent not at all.
        each = total / total.norm(dim=1, keepdim=True).clamp(min=1e-300)
        each = each - each[start.present].mean(0)
        return (each / each.norm(dim=1, keepdim=True).clamp(min=1e-300)).float()


def others_at_random(clients: Tensor, count: int, num_clients: int, random: torch.Generator) -> Tensor:
    """(n, count): for each of these clients (n,) anybody but itself, some perhaps twice."""
    others = torch.randint(num_clients - 1, (len(clients), count), generator=random)
    return others + (others >= clients[:, None])


def each_once(senders: Tensor) -> Peers:
    """The table of these senders (n, M), sorted, without those who are named twice in a row."""
    senders = senders.sort(1).values
    twice = torch.zeros_like(senders, dtype=torch.bool)
    twice[:, 1:] = senders[:, 1:] == senders[:, :-1]
    return Peers(~twice, senders)


def nearest(points: Tensor, count: int, present: Tensor, at_once: int = 2**24) -> Tensor:
    """(K, count): of unit vectors (K, D) the others with the largest inner products, those who are absent last; some rows
    at a time.
    """
    found = []
    for rows in torch.arange(len(points)).split(max(1, at_once // len(points))):
        alike = (points[rows] @ points.T).masked_fill_(~present, -2)
        alike[torch.arange(len(rows)), rows] = -torch.inf
        found.append(alike.topk(count, dim=1).indices)
    return torch.cat(found)


@dataclass(frozen=True)
class RandomPairs(PeerPolicy):
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

    def __call__(self, start: RoundStart) -> Peers:
        size = start.num_clients
        luck = torch.rand(size, size, generator=start.generator("peers"), dtype=torch.float64)
        chosen = (luck < self.probability(size, start.round)).triu(1)
        return Peers.everybody(size)._replace(looked=chosen | chosen.T)
