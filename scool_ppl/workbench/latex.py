"""The table of a comparison for a paper: LaTeX with booktabs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from scool_ppl.workbench.tables import COLUMNS, Summarised, cell_text, comparison, heading, number

UPWARD = {
    **dict.fromkeys(("accuracy", "worst 10 %", "before mixing", "gain over local", "graph AUC", "blocks ARI"), True),
    **dict.fromkeys(("harmed", "graph L1"), False),
}
"""Columns in which a best model can be named, and whether higher is better. Bounds of several likelihoods, and costs, are
not compared."""

_ESCAPED = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_ESCAPED |= {letter: f"\\{letter}" for letter in "&%$#_{}"}


def escaped(text: str) -> str:
    """A text as LaTeX prints it."""
    return "".join(_ESCAPED.get(letter, letter) for letter in text)


def best(results: Sequence[Sequence[Summarised]], column: str) -> int | None:
    """The model that is ahead of every other by more than a standard error, None if there is no such model.

    With d_s the difference of two models under seed s of S, both on the same clients: mean(d) > std(d) / sqrt(S).
    """
    if column not in UPWARD or len(results) < 2:
        return None
    sign = 1 if UPWARD[column] else -1
    values: dict[int, list[float]] = {}
    for place in range(len(results[0])):
        found = [number(one_seed[place].summary, COLUMNS[column]) for one_seed in results]
        known = [sign * value for value in found if value is not None and math.isfinite(value)]
        if len(known) == len(results):
            values[place] = known
    if len(values) < 2:
        return None
    leader = max(values, key=lambda place: fmean(values[place]))
    for place, others in values.items():
        if place != leader:
            ahead = [own - other for own, other in zip(values[leader], others, strict=True)]
            if not fmean(ahead) > stdev(ahead) / math.sqrt(len(ahead)):
                return None
    return leader


def latex(results: Sequence[Sequence[Summarised]]) -> str:
    """A tabular of all columns that are known for some model; the best is bold where `best` names one."""
    rows, seeds = comparison(results), len(results)
    columns = [column for column in COLUMNS if any(row[column] is not None for row in rows)]
    bold = {column: best(results, column) for column in columns}
    lines = [
        "% needs \\usepackage{booktabs}",
        f"% mean {'± standard deviation ' if seeds > 1 else ''}over {seeds} seed{'s' if seeds > 1 else ''}; bold: ahead of "
        "every other model by more than a standard error of the difference",
        "% under the same seeds" + ("" if seeds > 1 else "; one seed has no standard error, so nothing is bold"),
        f"\\begin{{tabular}}{{l{'r' * len(columns)}}}",
        "\\toprule",
        " & ".join(escaped(text) for text in ("model", *(heading(column, rows) for column in columns))) + r" \\",
        "\\midrule",
    ]
    for place, row in enumerate(rows):
        cells = [_cell(column, row[column], seeds, bold[column] == place) for column in columns]
        lines.append(" & ".join([escaped(row["model"]), *cells]) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])


def _cell(column: str, value: dict[str, float] | None, seeds: int, bold: bool) -> str:
    if value is None:
        return "--"
    mean, _, deviation = cell_text(column, value, seeds).partition(" ±")
    text = f"{mean} \\pm {deviation}" if deviation else mean
    return f"$\\mathbf{{{text}}}$" if bold else f"${text}$"
