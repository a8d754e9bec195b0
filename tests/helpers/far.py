"""Clients who are elsewhere, and fabrics that go wrong where a test says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scool_ppl.data.federation import Federation
from scool_ppl.far import Answers, Description, Host, Job, LocalFabric, RemoteClients, Request
from scool_ppl.far.wire import Build
from scool_ppl.train.clients import Clients


def hosts(here: Clients, parts: Sequence[Sequence[int]] | None = None) -> list[Host]:
    """The same clients with a host each, or in these parts."""
    parts = [[i] for i in range(here.num_clients)] if parts is None else parts
    return [Host(here.for_federation(here.federation.select(part))) for part in parts]


def remote(here: Clients, parts: Sequence[Sequence[int]] | None = None, **options: Any) -> RemoteClients:
    """The same clients as a driver meets them."""
    return RemoteClients(LocalFabric(*hosts(here, parts)), **options)


def from_files(federation: Federation, folder: Path, **options: Any) -> LocalFabric:
    """An .npz file for each client, read by a host of its own."""
    found = []
    for i, name in enumerate(federation.names):
        federation.select([i]).save_npz(folder / f"{i}.npz")
        found.append(Host(Clients(Federation.from_npz(folder / f"{i}.npz", name=name), **options)))
    return LocalFabric(*found)


@dataclass
class Faulty:
    """A fabric that loses or spoils what some clients answer to a verb: "raise", "silent", "shape", "name" or "short"."""

    inside: LocalFabric
    faults: Mapping[tuple[str, str], str] = field(default_factory=dict)
    near: bool = True
    asked: list[tuple[str, str]] = field(default_factory=list)
    holidays: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return self.inside.bytes

    def describe(self) -> dict[str, Description]:
        return self.inside.describe()

    def away(self, round: int) -> Mapping[str, str]:
        return self.holidays.get(round, {})

    def ask(self, names: Sequence[str], build: Build) -> Answers:
        def spoilt(name: str) -> Request:
            jobs = build(name)
            self.asked.extend((job.verb, name) for job in jobs)
            if self._kind(name, jobs) == "raise":
                return tuple(job._replace(tensors={}, networks=None, options={"predictors": 1}) for job in jobs)
            return jobs

        wrong = {name: self._kind(name, build(name)) for name in names}
        replies, faults = self.inside.ask([name for name in names if wrong[name] != "silent"], spoilt)
        for name, kind in wrong.items():
            if kind == "shape":
                replies[name] = tuple({key: value[None] for key, value in each.items()} for each in replies[name])
            elif kind == "name":
                replies["somebody"] = replies.pop(name)
            elif kind == "short":
                replies[name] = ()
        return Answers(replies, faults)

    def _kind(self, name: str, jobs: Sequence[Job]) -> str:
        return next((self.faults[job.verb, name] for job in jobs if (job.verb, name) in self.faults), "")
