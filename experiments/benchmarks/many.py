"""Ten thousand clients: does a round still fit, and are the groups found?

`permuted:digits` with images that repeat across clients, 50 a client, MLP 64-64-10, SCooL-SBM with `peers.Near`: tables
of candidates from the first round, no K x K numbers. Each size in a process of its own.

    python experiments/benchmarks/many.py
"""

from __future__ import annotations

import json
import subprocess
import sys

import timing
from clients import rounds_of

from scool_ppl import EM, Clients, Schedule, load_federation, load_model
from scool_ppl.train import network_of


def one(num_clients: int) -> timing.Row:
    """Seconds of the verbs of some rounds, the groups that are found, and the largest memory of this process."""
    data = load_federation(f"permuted:digits:clients={num_clients},train=50,repeat=true,test=100")
    clients = Clients(data, network_of(data, "mlp"), executor="stacked")
    em = EM(load_model("scool_sbm", num_clients, near=24), clients, Schedule(5, 5))
    return rounds_of(f"scool_sbm near=24, K = {num_clients}", em)


def main() -> None:
    if len(sys.argv) == 2 and sys.argv[1].isdigit():
        print(json.dumps(one(int(sys.argv[1]))))
        return
    asked, rows = timing.options(__doc__), []
    for num_clients in (1000,) if asked.quick else (1000, 10_000):
        done = subprocess.run(
            [sys.executable, __file__, str(num_clients)], capture_output=True, text=True, check=True, timeout=3600
        )
        row: timing.Row = json.loads(done.stdout.splitlines()[-1])
        timing.show_round(row)
        rows.append(row)
    timing.keep("many", rows, asked.quick)


if __name__ == "__main__":
    main()
