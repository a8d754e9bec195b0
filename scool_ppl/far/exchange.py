"""Exchange: what is asked at once, whose answer belongs where, and who failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scool_ppl.errors import ClientError, InputError, RunError
from scool_ppl.far.wire import Fabric, Job, Option, Reply, Request

Told = Mapping[str, Tensor]


class Part(NamedTuple):
    """One thing that is asked of several clients: who (K,) bool, its job for each, and where the answer goes."""

    who: Tensor
    build: Callable[[int], Job]
    take: Callable[[int, Told], None]


class Exchange:
    """Puts parts to clients in one trip. `common` are options that go with every job.

    What is `kept` for a round is not asked again while the round lasts: when it begins again without those who failed,
    nobody else does the same work twice.
    """

    def __init__(self, fabric: Fabric, names: Sequence[str]) -> None:
        self.fabric, self.names, self.common = fabric, tuple(names), dict[str, Option]()
        self._kept: dict[str, tuple[Request, Reply]] = {}
        self._round = -1

    def __call__(self, parts: Sequence[Part], *, kept: int | None = None) -> None:
        """Ask, and hand out the answers; a ClientError names all who failed. kept: the round to keep answers for."""
        faults = self.attempt(parts, kept=kept)
        if faults:
            raise ClientError(faults)

    def attempt(self, parts: Sequence[Part], *, kept: int | None = None) -> dict[str, str]:
        """Ask, and hand out the answers; who failed, and why."""
        asks = [part.who.tolist() for part in parts]
        mine = {i: [part for part, who in zip(parts, asks, strict=True) if who[i]] for i in range(len(self.names))}
        asked = {self.names[i]: i for i, of in mine.items() if of}
        if not asked:
            return {}

        def build(name: str) -> Request:
            jobs = tuple(part.build(asked[name]) for part in mine[asked[name]])
            if not self.common:
                return jobs
            return tuple(job._replace(options={**job.options, **self.common}) for job in jobs)

        replies, faults = self._ask(list(asked), build) if kept is None else self._again(list(asked), build, kept)
        for name, reply in replies.items():
            wanted = mine[asked[name]]
            try:
                if len(reply) != len(wanted):
                    raise InputError(f"it sent {len(reply)} answers to {len(wanted)} questions")
                for part, told in zip(wanted, reply, strict=True):
                    part.take(asked[name], told)
            except InputError as error:
                faults[name] = str(error)
        return faults

    def _ask(self, names: list[str], build: Callable[[str], Request]) -> tuple[dict[str, Reply], dict[str, str]]:
        replies, faults = self.fabric.ask(names, build)
        strangers = sorted((replies.keys() | faults.keys()) - set(names))
        if strangers:
            raise RunError(f"'{strangers[0]}' answered a question that was not put to it; repair that host")
        silent = dict.fromkeys((name for name in names if name not in replies and name not in faults), "no answer")
        return dict(replies), {**faults, **silent}

    def _again(
        self, names: list[str], build: Callable[[str], Request], round: int
    ) -> tuple[dict[str, Reply], dict[str, str]]:
        """The same; answers of this round to the same request are those given before."""
        if round != self._round:
            self._kept, self._round = {}, round
        requests = {name: build(name) for name in names}
        known = {name: self._kept[name][1] for name in names if name in self._kept and self._same(name, requests)}
        fresh = [name for name in names if name not in known]
        replies, faults = self._ask(fresh, requests.__getitem__) if fresh else ({}, {})
        self._kept |= {name: (requests[name], reply) for name, reply in replies.items()}
        return {**known, **replies}, faults

    def _same(self, name: str, requests: Mapping[str, Request]) -> bool:
        """Was a client asked exactly this before?"""
        before, now = self._kept[name][0], requests[name]
        return len(before) == len(now) and all(
            one.verb == two.verb
            and one.options == two.options
            and one.tensors.keys() == two.tensors.keys()
            and all(torch.equal(value, two.tensors[key]) for key, value in one.tensors.items())
            for one, two in zip(before, now, strict=True)
        )


def got(told: Told, name: str, shape: Sequence[int] | None = None) -> Tensor:
    """An answer, which must have this shape; -1 is any length."""
    if name not in told:
        raise InputError(f"it sent no {name}")
    value = told[name]
    if shape is not None and value.shape != tuple(shape):
        fits = value.dim() == len(shape) and all(
            wanted in (-1, found) for wanted, found in zip(shape, value.shape, strict=True)
        )
        if not fits:
            raise InputError(f"it sent a {name} of shape {tuple(value.shape)}, expected {tuple(shape)}")
    return value
