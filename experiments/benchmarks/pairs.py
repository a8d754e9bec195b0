"""How long do gradients half way between pairs of clients take, beside a loop by hand?

<grad f_i(m_ij), grad f_j(m_ij)> at m_ij = (theta_i + theta_j) / 2 for all pairs of K clients, which CoBo asks for in every
round; f_i is the loss on a probe of 50 images. By hand: a copy of the network, two backward passes a pair.

    python experiments/benchmarks/pairs.py
"""

from __future__ import annotations

from itertools import combinations

import timing
import torch
from clients import federation
from torch import Tensor

from scool_ppl import Clients
from scool_ppl.graph import Peers
from scool_ppl.train import Alignment, network_of


def measured(case: str, num_clients: int, size: int, kind: str, executor: str, repeat: int) -> timing.Row:
    data = federation(num_clients, size)
    clients = Clients(data, network_of(data, kind), executor=executor)
    start = {name: value + 0.01 * torch.randn_like(value) for name, value in clients.init(0).items()}
    question, probe, found = Alignment(start, Peers.everybody(num_clients)), clients.probe(0, 0), {}
    network = clients.network()
    leaves = dict(network.named_parameters())

    def slope(client: int) -> tuple[Tensor, ...]:
        outputs = network(clients.inputs[probe.index[client]])
        loss = torch.nn.functional.cross_entropy(outputs, probe.targets[client])
        return torch.autograd.grad(loss, list(leaves.values()))

    def by_hand() -> None:
        table = torch.zeros(num_clients, num_clients)
        for i, j in combinations(range(num_clients), 2):
            with torch.no_grad():
                for name, leaf in leaves.items():
                    leaf.copy_((start[name][i] + start[name][j]) / 2)
            products = [(mine * theirs).sum() for mine, theirs in zip(slope(i), slope(j), strict=True)]
            table[i, j] = table[j, i] = torch.stack(products).sum()
        found["by hand"] = table

    def library() -> None:
        found["library"] = clients.answer({"a": question}, seed=0, round=0)["a"]

    row = timing.compare(case, {"by hand": by_hand, "library": library}, repeat, "by hand")
    row["largest difference"] = float((found["by hand"] - found["library"]).abs().max())
    return row


def main() -> None:
    asked = timing.options(__doc__)
    small, large = (20, 4) if asked.quick else (100, 12)
    rows = [
        measured(f"MLP 64-64-10, K = {small}", small, 8, "mlp", "stacked", asked.repeat),
        measured(f"CNN of FedAvg, 28 x 28, K = {large}", large, 28, "cnn", "loop", asked.repeat),
    ]
    timing.keep("pairs", rows, asked.quick)


if __name__ == "__main__":
    main()
