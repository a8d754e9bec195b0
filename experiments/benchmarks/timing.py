"""What all benchmarks share: sides measured in turns in one process, in CPU and wall seconds, and what is kept of them."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
import torch

FOLDER = Path(__file__).parent
Sides = Mapping[str, Callable[[], object]]
Row = dict[str, Any]


def options(description: str | None) -> argparse.Namespace:
    """--quick is what CI prints; --out is where the numbers go."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes and few repetitions, nothing is written")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions of each side (default: 5)")
    return parser.parse_args()


def compare(case: str, sides: Sides, repeat: int, reference: str) -> Row:
    """Runs all sides once, then `repeat` times in turn; medians, and ratios to the reference side."""
    seconds: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in sides}
    for run in sides.values():
        run()
    for _ in range(repeat):
        for name, run in sides.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            seconds[name]["wall"].append(time.perf_counter() - wall)
            seconds[name]["cpu"].append(time.process_time() - cpu)
    row: Row = {"case": case, "reference": reference, "sides": {}}
    for name, found in seconds.items():
        middle = {kind: statistics.median(values) for kind, values in found.items()}
        base = {kind: statistics.median(seconds[reference][kind]) for kind in middle}
        row["sides"][name] = {
            "wall": middle["wall"],
            "cpu": middle["cpu"],
            "ratio_wall": middle["wall"] / base["wall"],
            "ratio_cpu": middle["cpu"] / max(base["cpu"], 1e-9),
            "runs": {kind: [round(value, 6) for value in values] for kind, values in found.items()},
        }
    show(row)
    return row


def show(row: Row) -> None:
    """One line a side: medians of wall and CPU seconds, and how many times the reference's these are."""
    for name, side in row["sides"].items():
        mark = " (reference)" if name == row["reference"] else ""
        print(
            f"{row['case']:<34} {name:<28} {side['wall']:>9.4f} s {side['cpu']:>9.4f} s CPU "
            f"{side['ratio_wall']:>7.2f} x{mark}",
            flush=True,
        )


def machine() -> Row:
    """What these numbers are of."""
    found = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        found["processor"] = names[0] if names else found["processor"]
    return found


def keep(name: str, rows: list[Row], quick: bool) -> None:
    """Writes NAME.json beside this file, unless it was a quick run."""
    if not quick:
        path = FOLDER / f"{name}.json"
        path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
        print(f"wrote {path}")
