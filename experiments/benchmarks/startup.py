"""How long until the command and the library are there? Each in a process of its own.

python experiments/benchmarks/startup.py
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import timing

CASES = {
    "python": ["-c", ""],
    "import torch": ["-c", "import torch"],
    "import scool_ppl": ["-c", "import scool_ppl"],
    "from scool_ppl import EM, Clients": ["-c", "from scool_ppl import EM, Clients"],
    "scool --help": ["-m", "scool_ppl", "--help"],
    "scool fit --help": ["-m", "scool_ppl", "fit", "--help"],
}


def seconds(arguments: list[str]) -> tuple[float, float]:
    wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, timeout=120)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    asked = timing.options(__doc__)
    found: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in CASES}
    for repetition in range(asked.repeat + 1):
        for name, arguments in CASES.items():
            wall, cpu = seconds(arguments)
            if repetition:  # the first one reads files from the disk
                found[name]["wall"].append(wall)
                found[name]["cpu"].append(cpu)
    timing.keep("startup", [timing.row_of("startup", found, "import torch")], asked.quick)


if __name__ == "__main__":
    main()
