"""How long does a round of FedAvg with its evaluation take, beside the same round written by hand?

20 clients with images of MNIST's shape, one epoch in batches of 10, the DNN (100 hidden units) and the CNN of FedAvg. By
hand, on one thread: one client after the other, the average of the networks, every client's network on its own test
images. Sides take turns in one process.

    python experiments/benchmarks/byhand.py
"""

from __future__ import annotations

from collections.abc import Callable

import timing
import torch
from clients import federation
from torch import nn

from scool_ppl import EM, Clients, Schedule, load_model
from scool_ppl.train import Plan, network_of

CASES = {"DNN": ("mlp", {"hidden": (100,)}, "stacked"), "CNN": ("cnn", {}, "loop")}
"""Network, its options, and the executor that is the faster one for it."""
BY_HAND, LIBRARY = "by hand", "library"


def sides_of(case: str, num_clients: int) -> dict[str, Callable[[], object]]:
    """A round and its evaluation by hand, and by the library."""
    data, (network, options, executor) = federation(num_clients, 28, train=500, test=100), CASES[case]
    clients = Clients(data, network_of(data, network, **options), executor=executor)
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
    return row


def main() -> None:
    asked = timing.options(__doc__)
    rows = [measured(case, 4 if asked.quick else 20, asked.repeat) for case in CASES]
    timing.keep("byhand", rows, asked.quick)


if __name__ == "__main__":
    main()
