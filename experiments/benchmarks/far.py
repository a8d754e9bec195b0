"""What does it cost that clients are elsewhere? Rounds over a fabric, and by two ranks of torchrun, beside one process.

A round is that of a run: training, looking, inferring, mixing, evaluating. "hosts" are in this process, and every trip to
them takes half a millisecond each way. Ranks have a thread each, and the one process as many threads as there are ranks;
"networks shared" is --shard. "a message to a silo": the process that a message begins, which reads the silo's file, trains
for an epoch, and ends.

    python experiments/benchmarks/far.py
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import timing
import torch
from clients import federation

from scool_ppl import EM, Clients, Schedule, load_model
from scool_ppl.far import Answers, Host, Job, LocalFabric, RemoteClients, ShardedClients, ranks
from scool_ppl.train import AnyClients, network_of

LATENCY, CLIENTS, RANKS = 5e-4, 20, 2
KEY = b"rounds"
SILO = """
import sys
from scool_ppl.data import Federation
from scool_ppl.far import Host, Job
from scool_ppl.train import Clients, network_of

data = Federation.from_npz(sys.argv[1], name="a")
host = Host(Clients(data, network_of(data, "mlp"), executor="loop"))
theta = host.handle({"a": (Job("init", {"seed": 0}, {}),)}).replies["a"][0]["theta"]
host.handle({"a": (Job("train", {"epochs": 1, "seed": 0, "round": 0}, {"theta": theta}),)})
"""


class Slow(LocalFabric):
    """Hosts that a message takes some time to get to, and to come back from; all of them at once."""

    def ask(self, names: Sequence[str], build: Callable[[str], tuple[Job, ...]]) -> Answers:
        time.sleep(2 * LATENCY)
        return super().ask(names, build)


def rounds_of(clients: AnyClients, epochs: int) -> Callable[[], None]:
    """What goes on by a round, evaluation included."""
    em = EM(load_model("scool_sbm", clients.num_clients), clients, Schedule(epochs, epochs), seed=1)
    state = em.init()

    def one() -> None:
        nonlocal state
        state, info = em.step(state)
        em.evaluate_both(state, info.trained)

    return one


def over_fabric(repeat: int) -> timing.Row:
    """Rounds of small networks, which gain nothing from a second thread: at one host, at four, each at one of its own."""
    data = federation(CLIENTS)
    torch.set_num_threads(1)

    def clients(part: Sequence[int]) -> Clients:
        return Clients(data.select(part), network_of(data, "mlp"), executor="stacked")

    sides = {"one process": rounds_of(clients(range(CLIENTS)), 5)}
    for count in (1, 4, CLIENTS):
        each = CLIENTS // count
        hosts = [Host(clients(range(first, first + each))) for first in range(0, CLIENTS, each)]
        name = f"{count} host{'s' if count > 1 else ''}, {2e3 * LATENCY:g} ms a trip"
        sides[name] = rounds_of(RemoteClients(Slow(*hosts)), 5)
    return timing.compare(f"MLP 64-64-10, K = {CLIENTS}", sides, 10 * repeat, "one process")  # rounds of .04 s each


NETWORKS: dict[str, dict[str, Any]] = {
    "CNN of FedAvg, width 0.25": {"name": "cnn", "width": 0.25},
    "MLP 784-1200-10": {"name": "mlp", "hidden": (1200,)},
}
"""Of which clients that ranks share."""


def work(port: int, case: str, count: int, shard: bool) -> None:
    """A process of `by_ranks`: it goes on by a round whenever it is told to, and says how much of the CPU that took, and
    the most memory that it has had.
    """
    data = federation(count, 28)
    whole = Clients(data, network_of(data, **NETWORKS[case]), executor="loop")
    with ranks() as group:
        clients = whole if group is None else ShardedClients(whole, group) if shard else group.clients(whole)
        one = rounds_of(clients, 1)
        with Client(("localhost", port), authkey=KEY) as line:
            line.send("ready")
            while line.recv():
                before = time.process_time()
                one()
                line.send((time.process_time() - before, timing.peak_megabytes()))


class Workers:
    """Processes that go through a round together."""

    def __init__(self, program: Sequence[str], number: int, threads: int, arguments: Sequence[object]) -> None:
        with Listener(("localhost", 0), authkey=KEY) as door:
            words = [sys.executable, *program, __file__, str(door.address[1]), *map(str, arguments)]
            environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
            self.megabytes = 0
            self.process = subprocess.Popen(words, env=environment)
            self.lines: list[Connection] = [door.accept() for _ in range(number)]
        for line in self.lines:
            line.recv()

    def round(self) -> tuple[float, float]:
        """Wall seconds until the last is done, and CPU seconds of all."""
        before = time.perf_counter()
        for line in self.lines:
            line.send(True)
        told = [line.recv() for line in self.lines]
        self.megabytes = max(megabytes for _, megabytes in told)
        return time.perf_counter() - before, sum(cpu for cpu, _ in told)

    def end(self) -> None:
        for line in self.lines:
            line.send(False)
        self.process.wait(timeout=60)


def by_ranks(case: str, count: int, repeat: int) -> timing.Row:
    """Rounds in turns, and the memory of the largest process of each side."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    sides = {
        f"one process, {RANKS} threads": Workers([], 1, RANKS, (case, count, 0)),
        f"{RANKS} ranks": Workers(torchrun, RANKS, 1, (case, count, 0)),
        f"{RANKS} ranks, networks shared": Workers(torchrun, RANKS, 1, (case, count, 1)),
    }
    seconds: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in sides}
    for repetition in range(repeat + 1):
        for name, side in sides.items():
            wall, cpu = side.round()
            if repetition:  # the first round makes what the next ones use again
                seconds[name]["wall"].append(wall)
                seconds[name]["cpu"].append(cpu)
    for side in sides.values():
        side.end()
    row = timing.row_of(f"{case}, K = {count}", seconds, next(iter(sides)))
    for name, side in sides.items():
        row["sides"][name]["megabytes"] = side.megabytes
        print(f"{name}: {side.megabytes} MB")
    return row


def a_message(repeat: int) -> timing.Row:
    """The process of a silo that answers, beside one that imports torch."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "silo.npz"
        federation(CLIENTS).select([0]).save_npz(path)
        cases = {"import torch": ["import torch"], "a message to a silo": [SILO, str(path)]}
        seconds: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in cases}
        for repetition in range(repeat + 1):
            for name, words in cases.items():
                wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run([sys.executable, "-c", *words], check=True, timeout=120)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                if repetition:
                    seconds[name]["wall"].append(time.perf_counter() - wall)
                    seconds[name]["cpu"].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return timing.row_of("a silo's process", seconds, "import torch")


def main() -> None:
    if len(sys.argv) == 5:
        work(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1")
        return
    asked = timing.options(__doc__)
    cnn, mlp = NETWORKS
    rows = [over_fabric(4 * asked.repeat), by_ranks(cnn, 6 if asked.quick else CLIENTS, asked.repeat)]
    if not asked.quick:
        rows.append(by_ranks(mlp, 2 * CLIENTS, 2))
    rows.append(a_message(asked.repeat))
    timing.keep("far", rows, asked.quick)


if __name__ == "__main__":
    main()
