"""How long does a round of FedAvg with its evaluation take, beside the same round written by hand, and in how much memory?

20 clients with images of MNIST's shape, one epoch in batches of 10, the DNN (100 hidden units) and the CNN of FedAvg. By
hand, on one thread: one client after the other, the average of the networks, every client's network on its own test
images. Sides take turns in one process; the memory is that of a process for each side, which imports the library in both.

    python experiments/benchmarks/byhand.py
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import timing
import torch
from clients import federation
from torch import nn

from scool_ppl import EM, Clients, Schedule, load_model
from scool_ppl.train import Plan, network_of

CASES = {"DNN": ("mlp", {"hidden": (100,)}), "CNN": ("cnn", {})}
BY_HAND, LIBRARY = "by hand", "library"


def sides_of(case: str, num_clients: int) -> dict[str, Callable[[], object]]:
    """A round and its evaluation by hand, and by the library."""
    data, (network, options) = federation(num_clients, 28, train=500, test=100), CASES[case]
    clients = Clients(data, network_of(data, network, **options))
    em = EM(load_model("fedavg", num_clients), clients, Schedule(local_epochs=1, warmup_epochs=1))
    state = em.init()

    def library() -> float:
        after, _ = em.step(state)
        return float(em.evaluate(after).score.mean())

    return {BY_HAND: by_hand(clients), LIBRARY: library}


def by_hand(clients: Clients) -> Callable[[], float]:
    """The same batches as the library's first round."""
    start, batches, data = clients.init(0), clients.batches(Plan(epochs=1)), clients.federation
    network = clients.network()

    def load(params: dict[str, torch.Tensor], client: int) -> None:
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                parameter.copy_(params[name][client])

    def trained(client: int) -> dict[str, torch.Tensor]:
        load(start, client)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, weight_decay=5e-4)
        for rows, labels in zip(batches.index[client], batches.targets[client], strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(data.inputs[rows]), labels).backward()
            optimizer.step()
        return {name: parameter.detach().clone() for name, parameter in network.named_parameters()}

    def one_round() -> float:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        score = scored()
        torch.set_num_threads(threads)
        return score

    def scored() -> float:
        each = [trained(client) for client in range(clients.num_clients)]
        mean = {name: torch.stack([found[name] for found in each]).mean(0)[None] for name in each[0]}
        load(mean, 0)
        right = []
        with torch.no_grad():
            for client, rows in enumerate(data.test):
                right.append((network(data.inputs[rows]).argmax(1) == data.labels(client, rows)).double().mean())
        return float(torch.stack(right).mean())

    return one_round


def measured(case: str, num_clients: int, repeat: int) -> timing.Row:
    sides = sides_of(case, num_clients)
    scores = {name: run() for name, run in sides.items()}
    row = timing.compare(f"{case}, K = {num_clients}", sides, repeat, BY_HAND)
    row["accuracy"] = scores
    for name, side in row["sides"].items():
        told = subprocess.run(
            [sys.executable, __file__, case, name, str(num_clients)], capture_output=True, text=True, check=True
        )
        side["megabytes"] = int(told.stdout.split()[-1])
        print(f"{name}: {side['megabytes']} MB, accuracy {scores[name]:.3f}", flush=True)
    return row


def main() -> None:
    if len(sys.argv) == 4:
        case, name, num_clients = sys.argv[1:]
        sides_of(case, int(num_clients))[name]()
        print(timing.peak_megabytes())
        return
    asked = timing.options(__doc__)
    rows = [measured(case, 4 if asked.quick else 20, asked.repeat) for case in CASES]
    timing.keep("byhand", rows, asked.quick)


if __name__ == "__main__":
    main()
