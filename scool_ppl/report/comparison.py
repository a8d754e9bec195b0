"""The report of a comparison, from the files that `scool compare` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scool_ppl.base.codec import Row
from scool_ppl.errors import InputError
from scool_ppl.report.page import picture, render, script
from scool_ppl.runs.folder import Run

COMPARISON = "comparison.json"


def comparison_page(folder: Path) -> str:
    """The page of a comparison: which model did best, the table, the figure, and every seed."""
    run = Run.open(folder)
    content = run.read_json(COMPARISON)
    rows, runs = content.get("table"), content.get("runs")
    if not isinstance(rows, list) or not isinstance(runs, list) or not rows or not runs:
        raise InputError(f"{folder / COMPARISON} has no table or no runs, expected both; repeat the comparison")
    score = str(rows[0].get("score", "accuracy"))
    heads = [name for name in rows[0] if name not in ("model", "score")]
    figure = folder / "comparison.png"
    return render(
        "table.html",
        [script("table.js")],
        title=f"{len(rows)} models on {run.settings.get('federation', 'the same clients')}",
        words=comparison_in_words(rows, len(runs), score),
        heads=["model", *(score if head == "accuracy" else head for head in heads)],
        rows=[[row["model"], *(told(row.get(head), len(runs)) for head in heads)] for row in rows],
        note=f"Mean over {len(runs)} seed{'s, ± standard deviation' if len(runs) > 1 else ''}.",
        figures=[("every model's graph, and its curves over the rounds", picture(figure))] if figure.is_file() else [],
        more=[_by_seed(runs, score)] if len(runs) > 1 else [],
        asked=[("settings of the first model", list(_flat(runs[0][0])))],
        versions=content.get("versions") or {},
    )


def comparison_in_words(rows: list[Row], seeds: int, score: str) -> list[str]:
    """Sentences: who is best and by how much, who beats local training, who harms clients."""

    def mean(row: Row, column: str) -> float | None:
        value = row.get(column)
        return float(value["mean"]) if isinstance(value, dict) and isinstance(value.get("mean"), int | float) else None

    known = sorted(((mean(row, "accuracy"), row["model"]) for row in rows if mean(row, "accuracy") is not None), reverse=True)
    if not known:
        return [f"No model has a {score}."]
    texts = [f"{known[0][1]} has the highest mean {score}, {known[0][0]:.3f}"]
    if len(known) > 1:
        texts[0] += f"; {known[1][1]} comes next with {known[1][0]:.3f}"
    texts[0] += "." if seeds > 1 else "; one seed says little of such differences."
    gains = {row["model"]: gain for row in rows if (gain := mean(row, "gain over local")) is not None}
    better = [f"{name} ({gain:+.3f})" for name, gain in gains.items() if gain > 0]
    if gains:
        texts.append(f"Better than training alone, in the mean: {', '.join(better) or 'none'}.")
    harmful = [f"{row['model']} {share:.0%}" for row in rows if (share := mean(row, "harmed"))]
    if harmful:
        texts.append(f"Clients that are worse off than alone by more than noise: {', '.join(harmful)}.")
    return texts


def told(value: Any, seeds: int) -> tuple[str, float | None]:
    """A cell of the table as a text, and the number to sort by."""
    if not isinstance(value, dict) or not isinstance(value.get("mean"), int | float):
        return "–", None
    text = f"{value['mean']:.4g}"
    return f"{text} ± {value.get('std', 0):.2g}" if seeds > 1 else text, float(value["mean"])


def _by_seed(runs: list[list[Row]], score: str) -> tuple[str, list[str], list[list[Any]]]:
    """The mean score of every model under every seed."""
    heads = ["seed", *(str(summary.get("model")) for summary in runs[0])]
    rows = []
    for number, one in enumerate(runs):
        cells = [told(summary.get("accuracy"), 1) for summary in one]
        rows.append([str(one[0].get("seed", number)), *cells])
    return f"mean {score}, seed by seed", heads, rows


def _flat(summary: Row) -> list[tuple[str, Any]]:
    return [(name, summary[name]) for name in ("federation", "rounds", "hyperparameters") if name in summary]
