"""What all benchmarks share: sides measured in turns in one process, in CPU and wall seconds, and what is kept of them."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
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
    """--quick is what CI prints, and writes nothing."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes and few repetitions, nothing is written")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions of each side (default: 5)")
    asked = parser.parse_args()
    asked.repeat = 2 if asked.quick else asked.repeat
    return asked


def compare(case: str, sides: Sides, repeat: int, reference: str) -> Row:
    """Runs all sides once, then `repeat` times in turn; medians, and how many times the reference's they are."""
    seconds: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in sides}
    for run in sides.values():
        run()
    for _ in range(repeat):
        for name, run in sides.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            seconds[name]["wall"].append(time.perf_counter() - wall)
            seconds[name]["cpu"].append(time.process_time() - cpu)
    return row_of(case, seconds, reference)


def row_of(case: str, seconds: Mapping[str, Mapping[str, list[float]]], reference: str) -> Row:
    """Medians of what was measured, and ratios to the reference."""
    medians = {
        name: {kind: statistics.median(found) for kind, found in kinds.items()} for name, kinds in seconds.items()
    }
    sides = {
        name: {
            **{kind: round(value, 5) for kind, value in middle.items()},
            "times the reference": round(middle["wall"] / medians[reference]["wall"], 3),
            "runs": [round(value, 5) for value in seconds[name]["wall"]],
        }
        for name, middle in medians.items()
    }
    row = {"case": case, "reference": reference, "sides": sides}
    show(row)
    return row


def show(row: Row) -> None:
    """One line a side."""
    for name, side in row["sides"].items():
        mark = " (reference)" if name == row["reference"] else ""
        print(
            f"{row['case']:<36} {name:<34} {side['wall']:>9.4f} s {side['cpu']:>9.4f} s CPU "
            f"{side['times the reference']:>7.2f} x{mark}",
            flush=True,
        )


def show_round(row: Row) -> None:
    """A line for the first round, and one for the next ones."""
    for when in ("first", "next"):
        found = row[when]
        verbs = "  ".join(f"{verb} {found[verb]:.3f}" for verb in ("train", "look", "infer", "mix", "evaluate"))
        share = f"infer is {found['infer'] / found['round']:.0%} of {found['round']:.2f} s"
        print(f"{row['case']:<36} {when:<6} {verbs}  {share}", flush=True)


def peak_megabytes() -> int:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def machine() -> Row:
    """What these numbers are of; load: processes at work in the last five minutes, those of the benchmark among them."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__.partition("+")[0],
        "numpy": numpy.__version__,
        "load": round(os.getloadavg()[1], 1),
    }


def keep(name: str, rows: list[Row], quick: bool) -> None:
    """Writes NAME.json beside this file, unless it was a quick run."""
    if not quick:
        path = FOLDER / f"{name}.json"
        path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
        print(f"wrote {path.name}")
