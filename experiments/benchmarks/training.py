"""How long does a round of local training take, beside loops written by hand?

Batches of 10 for every client, SGD with weight decay; five epochs of the small network, one of the others. "plain loop":
one client after the other, as anybody writes it, on one thread and on all. "best by hand": a worker thread for each core,
fused steps, inputs prepared once (channels last for convolutions). All sides train the same batches; bf16 is the library
with `precision="bf16"`.

    python experiments/benchmarks/training.py
"""

from __future__ import annotations

import copy
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import timing
import torch
from clients import federation
from torch import Tensor, nn

from scool_ppl import Clients
from scool_ppl.train import Plan, network_of

CORES = torch.get_num_threads()
Networks = dict[str, Tensor]


class Hand:
    """Loops over the clients, written by hand."""

    def __init__(self, clients: Clients, start: Networks, plan: Plan) -> None:
        self.clients, self.start, self.batches = clients, start, clients.batches(plan)
        images = clients.inputs
        self.inputs = images.contiguous(memory_format=torch.channels_last) if images.dim() == 4 else images
        self.trained: Networks = {}

    def descend(self, network: nn.Module, inputs: Tensor, client: int, fused: bool | None) -> Networks:
        index, targets = self.batches.index[client], self.batches.targets[client]
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                parameter.copy_(self.start[name][client])
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, weight_decay=5e-4, fused=fused)
        for rows, labels in zip(index, targets, strict=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(inputs[rows]), labels).backward()
            optimizer.step()
        return {name: parameter.detach().clone() for name, parameter in network.named_parameters()}

    def plain(self, threads: int) -> None:
        torch.set_num_threads(threads)
        network = self.clients.network()
        for client in range(self.clients.num_clients):
            self.descend(network, self.clients.inputs, client, None)
        torch.set_num_threads(CORES)

    def best(self) -> None:
        networks: queue.SimpleQueue[nn.Module] = queue.SimpleQueue()
        layout = torch.channels_last if self.inputs.dim() == 4 else torch.preserve_format
        for _ in range(CORES):
            networks.put(copy.deepcopy(self.clients.network()).to(memory_format=layout))

        def work(client: int) -> Networks:
            network = networks.get()
            found = self.descend(network, self.inputs, client, True)
            networks.put(network)
            return found

        with ThreadPoolExecutor(CORES, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            each = list(pool.map(work, range(self.clients.num_clients)))
        torch.set_num_threads(CORES)
        self.trained = {name: torch.stack([found[name] for found in each]) for name in each[0]}


def measured(
    name: str,
    num_clients: int,
    size: int,
    network: str,
    executors: tuple[str, ...],
    repeat: int,
    epochs: int = 1,
    **options: object,
) -> timing.Row:
    data, plan = federation(num_clients, size), Plan(epochs=epochs)
    make = network_of(data, network, **options)
    by_name = {}
    for executor in executors:
        kind, _, precision = executor.partition(", ")
        by_name[executor] = Clients(data, make, executor=kind, precision=precision or "full")
    some = next(iter(by_name.values()))
    start = some.init(0)
    hand, trained = Hand(some, start, plan), {}

    def library(executor: str) -> None:
        trained[executor] = by_name[executor].train(start, None, plan).params

    sides: dict[str, Callable[[], None]] = {"plain loop": lambda: hand.plain(1)}
    if CORES > 1:
        sides[f"plain loop, {CORES} threads"] = lambda: hand.plain(CORES)
    sides["best by hand"] = hand.best
    sides |= {f"library, {executor}": partial(library, executor) for executor in executors}
    row = timing.compare(f"{name}, K = {num_clients}", sides, repeat, "plain loop")
    row["largest difference of a parameter"] = max(
        float((hand.trained[name] - params[name]).abs().max())
        for executor, params in trained.items()
        for name in params
        if not executor.endswith("bf16")
    )
    return row


def main() -> None:
    asked = timing.options(__doc__)
    both = ("stacked", "loop")
    rows = [measured("MLP 64-64-10", 100, 8, "mlp", both, asked.repeat, epochs=5)]
    if not asked.quick:
        rows.append(measured("MLP 64-64-10", 1000, 8, "mlp", both, asked.repeat, epochs=5))
        rows.append(measured("MLP 784-200-10", 100, 28, "mlp", both, asked.repeat, hidden=(200,)))
    loops, some = ("loop", "loop, bf16"), 4 if asked.quick else 20
    rows.append(measured("CNN of FedAvg, 28 x 28", some, 28, "cnn", loops, asked.repeat))
    timing.keep("training", rows, asked.quick)


if __name__ == "__main__":
    main()
