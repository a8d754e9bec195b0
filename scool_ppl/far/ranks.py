"""Ranks: one simulation over several processes, begun by torchrun. Every rank runs the same driver and hosts its share of
the clients; what these answer is gathered by all.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from scool_ppl.errors import InputError, RunError
from scool_ppl.far.host import Host
from scool_ppl.far.remote import RemoteClients
from scool_ppl.far.wire import Answers, Build, Description, Job, Reply
from scool_ppl.graph.stacks import carried
from scool_ppl.train.clients import Clients

CHUNK = 2**26
"""Bytes in one message."""
RUN_ID = "TORCHELASTIC_RUN_ID"


class Ranks(NamedTuple):
    """Which of how many processes this is."""

    rank: int
    world: int

    @property
    def leads(self) -> bool:
        """Is it the one that writes and reports?"""
        return self.rank == 0

    def share(self, count: int) -> range:
        """The clients, of so many, that live here."""
        if count < self.world:
            raise InputError(
                f"{count} clients were to be shared by {self.world} processes, expected a client at least for each; lower "
                "--nproc-per-node"
            )
        return range(count * self.rank // self.world, count * (self.rank + 1) // self.world)

    def clients(self, whole: Clients) -> RemoteClients:
        """All these clients for the driver of every rank; each hosts its share of them."""
        here = whole.for_federation(whole.federation.select(self.share(whole.num_clients)))
        return RemoteClients(
            RankFabric(Host(here, keeps=False), self), federation=whole.federation, network=whole.network
        )

    @contextmanager
    def folder(self, path: Path) -> Iterator[Path]:
        """Where this rank keeps the run: the leader in `path`, others in a copy of it that is deleted in the end.

        All begin with what is in `path`, before anybody changes it.
        """
        with tempfile.TemporaryDirectory() as place:
            mine = path if self.leads else Path(place) / path.name
            if not self.leads and path.is_dir():
                shutil.copytree(path, mine)
            self.wait()
            yield mine

    def wait(self) -> None:
        """Until all ranks are here."""
        gathered("here", self.world)


@contextmanager
def ranks() -> Iterator[Ranks | None]:
    """The processes that torchrun has begun together; None if it has not, or there is one only."""
    if RUN_ID not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        yield None
        return
    begin()
    from torch.distributed.tensor.experimental import implicit_replication

    try:
        group = Ranks(dist.get_rank(), dist.get_world_size())
        with implicit_replication():  # a number for each client, which all ranks have, meets stacks that they share
            yield group
        group.wait()  # nobody goes while another is still reading what it sent
    finally:
        dist.destroy_process_group()


def begin(timeout: timedelta = timedelta(minutes=30)) -> None:
    """Join the others. Each attempt has keys of its own: after a restart the addresses of the dead are still in torchrun's
    store, and whoever read those would wait for them.
    """
    # Its functions have the group as a default, from when it is imported, and torch imports it at the first step of an
    # optimiser: a group that is never let go of has threads that are still at work when Python ends.
    import_module("torch.distributed.nn.functional")
    from torch._C._distributed_c10d import PrefixStore, TCPStore  # not in every build of torch

    env = os.environ
    store: Any = TCPStore(env["MASTER_ADDR"], int(env["MASTER_PORT"]), is_master=False, timeout=timeout)
    attempt = f"scool/{env[RUN_ID]}/{restarts()}"
    dist.init_process_group(
        "gloo",
        store=PrefixStore(attempt, store),
        rank=int(env["RANK"]),
        world_size=int(env["WORLD_SIZE"]),
        timeout=timeout,
    )


def restarts() -> int:
    """How often torchrun has begun anew after a process had died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


class RankFabric:
    """The host of this rank, and the replies of all. Every rank must ask the same things in the same order, of the same
    networks, to the bit; where they do not, all stop. `bytes` counts each reply once for every rank that it has gone to.
    """

    near = True

    def __init__(self, host: Host, ranks: Ranks) -> None:
        self.host, self.ranks, self.trips, self.bytes = host, ranks, 0, 0
        self.where: dict[str, int] = {}

    def describe(self) -> dict[str, Description]:
        every = gathered(self.host.describe(), self.ranks.world)
        self.where = {name: rank for rank, told in enumerate(every) for name in told}
        return {name: each for told in every for name, each in told.items()}

    def away(self, round: int) -> Mapping[str, str]:
        return {}

    def ask(self, names: Sequence[str], build: Build) -> Answers:
        self.trips += 1
        first = build(names[0])
        asked = (tuple(names), tuple(_digest(job) for job in first))
        mine = {name: first if name == names[0] else build(name) for name in names if self._is_here(name)}
        replies, faults = self.host.handle(mine) if mine else Answers({}, {})
        return self._all(asked, names, replies, faults)

    def _is_here(self, name: str) -> bool:
        return self.where[name] == self.ranks.rank

    def _all(
        self, asked: object, names: Sequence[str], replies: Mapping[str, Reply], faults: Mapping[str, str]
    ) -> Answers:
        """What all ranks have to say: first what it is, then the numbers."""
        head = {
            name: [[(key, tuple(value.shape), value.dtype) for key, value in told.items()] for told in of]
            for name, of in replies.items()
        }
        parts = [_bytes(value) for of in replies.values() for told in of for value in told.values()]
        payload = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.uint8)
        heads = gathered((asked, head, dict(faults), len(payload)), self.ranks.world)
        if any(each[0] != asked for each in heads):
            raise RunError(
                "ranks ask for different things, or of networks that differ; they must run the same program on machines of "
                "one kind; go on from the last checkpoint"
            )
        found: dict[str, Reply] = {}
        failed: dict[str, str] = {}
        for rank, (_, theirs, wrong, size) in enumerate(heads):
            buffer = payload if rank == self.ranks.rank else torch.empty(size, dtype=torch.uint8)
            for start in range(0, size, CHUNK):
                carried(dist.broadcast, buffer[start : start + CHUNK], src=rank)
            self.bytes += size * (self.ranks.world - 1)
            found |= _unpacked(theirs, buffer)
            failed |= wrong
        order = [name for name in names if name in found]
        return Answers({name: found[name] for name in order}, failed)


def _bytes(value: Tensor) -> Tensor:
    return value.detach().cpu().contiguous().flatten().view(torch.uint8)


def _unpacked(heads: Any, buffer: Tensor) -> dict[str, Reply]:
    """The replies of a rank from their names and shapes and the bytes of their numbers."""
    found, at = dict[str, Reply](), 0
    for name, of in heads.items():
        reply = list[dict[str, Tensor]]()
        for told in of:
            values = dict[str, Tensor]()
            for key, shape, dtype in told:
                length = torch.Size(shape).numel() * dtype.itemsize
                values[key] = buffer[at : at + length].clone().view(dtype).reshape(shape)
                at += length
            reply.append(values)
        found[name] = tuple(reply)
    return found


def _digest(job: Job) -> tuple[object, ...]:
    """What a job asks, and a sum over the bits of all networks that it is about."""
    tensors = {**job.tensors, **({} if job.networks is None else {"networks": job.networks.stack})}
    sums = {name: _sum(value) for name, value in tensors.items()}
    return job.verb, tuple(sorted(job.options.items())), tuple(sums.items())


def _sum(value: Tensor) -> int:
    numbers = _bytes(value)
    wide = numbers.view(torch.int32) if len(numbers) % 4 == 0 else numbers
    return int(wide.sum(dtype=torch.int64))


def gathered(mine: Any, world: int) -> list[Any]:
    """What every rank has, by rank."""
    every: list[Any] = [None] * world
    carried(dist.all_gather_object, every, mine)
    return every
