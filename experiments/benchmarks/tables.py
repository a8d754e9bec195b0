"""The tables of RESULTS.md, from the JSON files beside it: what stands between `<!-- NAME -->` and `<!-- /NAME -->`.

python experiments/benchmarks/tables.py
"""

from __future__ import annotations

import json
import re
from typing import Any

import timing


def of_sides(rows: list[dict[str, Any]]) -> list[str]:
    """A line for every side of every case, with its memory where that was measured."""
    sized = any("megabytes" in side for row in rows for side in row["sides"].values())
    lines = [
        f"| case | side | seconds | CPU seconds | times the reference |{' peak MB |' if sized else ''}",
        f"| --- | --- | --- | --- | --- |{' --- |' if sized else ''}",
    ]
    for row in rows:
        for place, (name, side) in enumerate(row["sides"].items()):
            case = row["case"] if place == 0 else ""
            times = f"{side['times the reference']:.2f}" + (" (reference)" if name == row["reference"] else "")
            memory = f" {side.get('megabytes', '')} |" if sized else ""
            lines.append(f"| {case} | {name} | {side['wall']:.4f} | {side['cpu']:.4f} | {times} |{memory}")
    return lines


def of_rounds(rows: list[dict[str, Any]]) -> list[str]:
    """A line for the first round of every case, and one for the next ones."""
    head = ("case", "round", "train", "look", "infer", "mix", "evaluate", "infer's share", "ARI", "peak MB")
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in rows:
        for when in ("first", "next"):
            found = row[when]
            verbs = " | ".join(
                f"{found[verb]:.3f}" if verb in found else "" for verb in ("train", "look", "infer", "mix", "evaluate")
            )
            last = f"{row['ARI']:.2f} | {row['megabytes']}" if when == "next" else " | "
            case = row["case"] if when == "first" else ""
            lines.append(f"| {case} | {when} | {verbs} | {found['infer'] / found['round']:.0%} | {last} |")
    return lines


def of_memory(rows: list[dict[str, Any]]) -> list[str]:
    """A line for every case: what is held, in megabytes."""
    heads = ["case", *(f"{name}, MB" for name in rows[0]["MB"])]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    return lines + [f"| {row['case']} | {' | '.join(f'{value:.1f}' for value in row['MB'].values())} |" for row in rows]


def main() -> None:
    path = timing.FOLDER / "RESULTS.md"
    text = path.read_text()
    for store in sorted(timing.FOLDER.glob("*.json")):
        kept, name = json.loads(store.read_text()), store.stem
        rows = kept["rows"]
        table = next(made for kind, made in KINDS.items() if kind in rows[0])(rows)
        machine = ", ".join(f"{key} {value}" for key, value in kept["machine"].items())
        section = "\n".join([f"<!-- {name} -->", *table, "", f"{machine}.", f"<!-- /{name} -->"])
        pattern = rf"<!-- {name} -->.*?<!-- /{name} -->"
        text, count = re.subn(pattern, section.replace("\\", r"\\"), text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(
                f"RESULTS.md has {count} places for {name}, expected one: <!-- {name} --> <!-- /{name} -->"
            )
    path.write_text(text)


KINDS = {"sides": of_sides, "first": of_rounds, "MB": of_memory}
"""By what their rows have."""

if __name__ == "__main__":
    main()
