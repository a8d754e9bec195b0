"""How long does it take to look at everybody, beside as many forward passes over one batch of all probes?

The losses of K networks on the probes of K clients (50 images each), MLP 64-64-10.

    python experiments/benchmarks/look.py
"""

from __future__ import annotations

import timing
import torch
from clients import federation

from scool_ppl import Clients
from scool_ppl.graph import Peers
from scool_ppl.train import network_of


def measured(num_clients: int, repeat: int) -> timing.Row:
    data = federation(num_clients)
    clients = Clients(data, network_of(data, "mlp"), executor="stacked")
    start = {name: value + 0.1 * torch.randn_like(value) for name, value in clients.init(0).items()}
    probe = clients.probe(0, 0)
    pile, labels = clients.inputs[probe.index.flatten()], probe.targets.flatten()
    network = clients.network()
    found = {}

    def passes(losses: bool) -> None:
        rows = []
        for i in range(num_clients):
            own = {name: value[i] for name, value in start.items()}
            outputs = torch.func.functional_call(network, own, (pile,))
            if losses:
                each = torch.nn.functional.cross_entropy(outputs, labels, reduction="none")
                rows.append(each.view(num_clients, -1).mean(1))
        if losses:
            found["passes"] = torch.stack(rows)

    def library() -> None:
        found["library"] = clients.pair_loss(start, Peers.everybody(num_clients, includes_self=True), probe)

    sides = {
        "K forward passes": lambda: passes(False),
        "K passes, with losses": lambda: passes(True),
        "library": library,
    }
    with torch.no_grad():
        row = timing.compare(f"K = {num_clients}", sides, repeat, "K forward passes")
    row["largest difference"] = float((found["passes"] - found["library"]).abs().max())
    return row


def main() -> None:
    asked = timing.options(__doc__)
    sizes = (20, 100) if asked.quick else (20, 100, 400, 1000)
    timing.keep("look", [measured(size, asked.repeat) for size in sizes], asked.quick)


if __name__ == "__main__":
    main()
