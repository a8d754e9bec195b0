"""The report of a comparison, from the files that `scool compare` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scool_ppl.base.codec import Row
from scool_ppl.errors import InputError
from scool_ppl.report.page import picture, render, script


def comparison_page(content: Row, path: Path) -> str:
    """The page of a comparison, `content` of the file `path`: who did best, the table, the figure, and every seed."""
    rows: list[Row] = content["table"]
    runs: list[list[Row]] = content.get("runs") or [[]]
    try:
        seeds = len(runs)
        score = str(rows[0].get("score", "accuracy"))
        heads = [name for name in rows[0] if name not in ("model", "score")]
        cells = [[row["model"], *(told(row.get(head), seeds) for head in heads)] for row in rows]
        words, more = comparison_in_words(rows, seeds, score), [_by_seed(runs, score)] if seeds > 1 else []
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no comparison ({error!r}); expected what `scool compare` writes") from error
    asked = dict(runs[0][0]) if runs[0] else {}
    figure = path.with_name("comparison.png")
    return render(
        "table.html",
        [script("table.js")],
        title=f"{len(rows)} models on {asked.get('federation', 'the same clients')}",
        words=words,
        heads=["model", *(score if head == "accuracy" else head for head in heads)],
        rows=cells,
        note=f"Mean over {seeds} seeds, ± standard deviation." if seeds > 1 else "Mean over clients.",
        figures=[("every model's graph, and its curves over the rounds", picture(figure))] if figure.is_file() else [],
        more=more,
        asked=[("all models", [(name, asked[name]) for name in ("federation", "rounds") if name in asked])],
        versions=content.get("versions") or {},
    )


def comparison_in_words(rows: list[Row], seeds: int, score: str) -> list[str]:
    """Sentences: who is best and by how much, who beats local training, who harms clients."""

    def mean(row: Row, column: str) -> float | None:
        value = row.get(column)
        return float(value["mean"]) if isinstance(value, dict) and isinstance(value.get("mean"), int | float) else None

    scores = ((mean(row, "accuracy"), row["model"]) for row in rows)
    known = sorted(((value, name) for value, name in scores if value is not None), reverse=True)
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
    mean = float(value["mean"])
    digits = 1 if abs(mean) >= 10 else 3
    return f"{mean:.{digits}f}" + (f" ± {value.get('std', 0):.{digits}f}" if seeds > 1 else ""), mean


def _by_seed(runs: list[list[Row]], score: str) -> tuple[str, list[str], list[list[Any]]]:
    """The mean score of every model under every seed."""
    heads = ["seed", *(str(summary.get("model")) for summary in runs[0])]
    rows = []
    for number, one in enumerate(runs):
        cells = [told(summary.get("accuracy"), 1) for summary in one]
        rows.append([str(one[0].get("seed", number)), *cells])
    return f"mean {score}, seed by seed", heads, rows
