"""Ten thousand clients: does a round still fit, and are the groups found?

`permuted:digits` with images that repeat across clients, 50 a client, MLP 64-64-10, SCooL-SBM with `peers.Near`: tables
of candidates from the first round, no K x K numbers. Each size in a process of its own.

    python experiments/benchmarks/many.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

import timing

from scool_ppl import EM, Clients, Schedule, load_federation, load_model
from scool_ppl.look import Near
from scool_ppl.train import network_of

ROUNDS = 4


def one(num_clients: int) -> timing.Row:
    """Seconds of the verbs of some rounds, the groups that are found, and the largest memory of this process."""
    data = load_federation(f"permuted:digits:clients={num_clients},train=50,repeat=true,test=100")
    clients = Clients(data, network_of(data, "mlp"), executor="stacked")
    em = EM(load_model("scool_sbm", num_clients)._replace(peers=Near()), clients, Schedule(5, 5))
    state, rounds = em.init(), []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        state, info = em.step(state)
        rounds.append({**info.seconds, "round": time.perf_counter() - start})
    verbs = ("train", "look", "infer", "mix", "round")
    return {
        "case": f"scool_sbm with Near, K = {num_clients}",
        "first": {verb: round(rounds[0][verb], 4) for verb in verbs},
        "next": {verb: round(statistics.median(each[verb] for each in rounds[1:]), 4) for verb in verbs},
        "ARI": em.graph(state).score(data.truth).ari,
        "megabytes": timing.peak_megabytes(),
    }


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
