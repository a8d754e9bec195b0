"""Where does a round's time go? Training, looking, inferring and mixing, in the first round and in the next ones.

MLP 64-64-10, five epochs of 50 images; and the CNN of FedAvg, one epoch of 400 images of CIFAR-10's shape. Each case in
a process of its own, whose largest memory is noted; "kept": with `keep_memory`, as the commands have it.

    python experiments/benchmarks/rounds.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import timing
import torch
from clients import cifar, federation, rounds_of

from scool_ppl import EM, Clients, Schedule, load_model
from scool_ppl.base import keep_memory
from scool_ppl.train import network_of

CONVOLUTIONAL = ("full", "bf16", "bf16, kept")


def one(model: str, num_clients: int) -> timing.Row:
    """Seconds of the verbs of some rounds, and the largest memory of this process."""
    data = federation(num_clients)
    clients = Clients(data, network_of(data, "mlp"), executor="stacked")
    schedule = Schedule(local_epochs=5, warmup_epochs=5)
    warm = EM(load_model("local", num_clients), clients, schedule)
    warm.step(warm.init())  # what torch loads at its first optimiser is no part of a round
    em = EM(load_model(model, num_clients, federation=data), clients, schedule)
    return rounds_of(f"{model}, K = {num_clients}", em)


def convolutional(num_clients: int, case: str) -> timing.Row:
    """The same of the papers' CNN, full width, in batches of 10."""
    precision, _, kept = case.partition(", ")
    if kept:
        keep_memory()
    data = cifar(num_clients)
    # With the default rate of .1 some of these networks diverge, and the round begins again without their clients.
    slow = partial(torch.optim.SGD, lr=0.02)
    clients = Clients(data, network_of(data, "cnn"), executor="loop", precision=precision, optimizer=slow)
    em = EM(load_model("scool_sbm", num_clients, federation=data), clients, Schedule(local_epochs=1, warmup_epochs=1))
    return rounds_of(f"scool_sbm, CNN of FedAvg, {case}, K = {num_clients}", em, 3)


def measured(case: str, num_clients: int) -> timing.Row:
    done = subprocess.run(
        [sys.executable, __file__, case, str(num_clients)], capture_output=True, text=True, check=True, timeout=1800
    )
    row: timing.Row = json.loads(done.stdout.splitlines()[-1])
    timing.show_round(row)
    return row


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[2].isdigit():
        case, count = sys.argv[1], int(sys.argv[2])
        print(json.dumps(convolutional(count, case) if case in CONVOLUTIONAL else one(case, count)))
        return
    asked = timing.options(__doc__)
    cases = [("scool_sbm", 20), ("scool_sbm", 100), ("hedge", 20)]
    if not asked.quick:
        cases += [("scool_sbm", 400), ("scool_sbm", 1000), ("hedge", 100), ("hedge", 200)]
        cases += [(case, 20) for case in CONVOLUTIONAL]
    timing.keep("rounds", [measured(*case) for case in cases], asked.quick)


if __name__ == "__main__":
    main()
