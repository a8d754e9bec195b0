"""What a hundred clients of one language model take: a frozen body that all have in common, and an adapter each (LoRA).

Megabytes by which a process grows when it makes `Clients` and their first state, and in a round of one step a client. Each
number of clients in a process of its own. Needs the extra lora.

    python experiments/benchmarks/adapters.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import timing

from scool_ppl import EM, Clients, Schedule, load_federation, load_model
from scool_ppl.train import Params, network_of

BODY, SMALL_BODY = "lora:layers=12,width=12", "lora:layers=1,width=1"


def held() -> float:
    """Megabytes that this process holds now."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6


def size(parameters: Params) -> float:
    """Megabytes of some parameters."""
    return sum(value.numel() * value.element_size() for value in parameters.values()) / 1e6


def one(num_clients: int, network: str) -> timing.Row:
    """What a number of clients grows this process by."""
    data = load_federation(f"text:clients={num_clients},groups=1,train=6,test=2,length=8")
    network_of(data, SMALL_BODY)()  # transformers and peft are imported, and have made a model
    before = held()
    clients = Clients(data, network_of(data, network), executor="loop")
    em = EM(load_model("fedavg", num_clients), clients, Schedule(local_steps=1))
    state = em.init()
    begun = held()
    em.step(state)
    found = {
        "body": size(clients.frozen),
        "adapters": size(state.params),
        "sent of a network": clients.bytes_per_model / 1e6,
        "clients and first state": begun - before,
        "peak after a round": timing.peak_megabytes() * 2**20 / 1e6 - before,
    }
    return {"case": f"{network}, K = {num_clients}", "MB": {name: round(value, 1) for name, value in found.items()}}


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1].isdigit():
        print(json.dumps(one(int(sys.argv[1]), sys.argv[2])))
        return
    asked, rows = timing.options(__doc__), []
    for num_clients in (2, 10) if asked.quick else (1, 10, 100):
        command = [sys.executable, __file__, str(num_clients), SMALL_BODY if asked.quick else BODY]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=3600)
        row: timing.Row = json.loads(done.stdout.splitlines()[-1])
        print(f"{row['case']:<36} {'  '.join(f'{name} {value} MB' for name, value in row['MB'].items())}", flush=True)
        rows.append(row)
    timing.keep("adapters", rows, asked.quick)


if __name__ == "__main__":
    main()
