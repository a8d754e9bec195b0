"""Curves of a run's history, drawn on the figure given, never shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scool_ppl.errors import InputError
from scool_ppl.plots.style import Array, new_figure, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


def _series(rows: Sequence[Mapping[str, Any]], *keys: str) -> Array:
    """The entry row[keys[0]][keys[1]]... of each row, nan where it is missing or null: (rounds,)."""
    values = []
    for row in rows:
        entry: Any = row
        for key in keys:
            entry = entry.get(key) if isinstance(entry, Mapping) else None
        values.append(math.nan if entry is None else float(entry))
    return np.array(values)


def draw_history(
    rows: Sequence[Mapping[str, Any]], figure: Figure | SubFigure | None = None, *, baseline: float | None = None
) -> Figure | SubFigure:
    """Draw a run's history.jsonl: accuracy, bound, loss and recovery of the graph, whichever were recorded.

    baseline: the mean accuracy of the same clients without cooperation, drawn as a level line.
    """
    from matplotlib.ticker import MaxNLocator

    if not rows:
        raise InputError("history has no rows, expected one a round; run at least one round")
    panels = _panels(rows)
    if not panels:
        raise InputError("history has none of accuracy, elbo, loss, graph; expected rows of a run's history.jsonl")
    numbers = _series(rows, "round")
    shape = (2, 2) if len(panels) == 4 else (1, len(panels))
    size = (4.6 * shape[1], 3.6 * shape[0])
    figure = new_figure(size) if figure is None else figure
    axes = figure.subplots(*shape, squeeze=False).flat
    for ax, (label, lines) in zip(axes, panels, strict=False):
        _lines(ax, _series(evaluated(rows), "round") if label == score_name(rows) else numbers, label, lines)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if label == score_name(rows):
            _accuracy(ax, evaluated(rows), baseline)
        if len(ax.lines) > 1:
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=8, frameon=False)
    return figure


def evaluated(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of the rounds in which networks were evaluated: `fit(evaluate_every=)` leaves others out, which is no gap."""
    spreads = ("accuracy", "accuracy_trained")
    return [row for row in rows if not all(name in row and row[name]["mean"] is None for name in spreads)]


def score_name(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the task of a history calls its score."""
    first: Any = rows[0]
    return str(first.get("score", "accuracy")) if isinstance(first, Mapping) else "accuracy"


def _panels(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, Array]]]]:
    """The panels of a history and the lines of each, without those that were never recorded."""
    some = evaluated(rows)
    mean, own = _series(some, "accuracy", "mean"), _series(some, "task_accuracy", "mean")
    panels: list[tuple[str, list[tuple[str, Array]]]] = [
        (
            score_name(rows),
            [
                ("mixed, mean ± std", mean),
                ("trained, before mixing", _series(some, "accuracy_trained", "mean")),
                ("mixed, worst 10 %", _series(some, "accuracy", "worst10")),
                # Where every client has all classes this is the accuracy again.
                *([] if np.allclose(own, mean, equal_nan=True) else [("mixed, on own classes", own)]),
            ],
        ),
        ("evidence lower bound", [("bound", _series(rows, "elbo"))]),
        ("training loss", [("loss", _series(rows, "loss"))]),
        (
            "graph against the truth",
            [
                ("edge AUC", _series(rows, "graph", "auc")),
                ("blocks, adjusted Rand index", _series(rows, "graph", "ari")),
                ("L1 distance of rows", _series(rows, "graph", "l1")),
            ],
        ),
    ]
    panels = [(label, [line for line in lines if np.isfinite(line[1]).any()]) for label, lines in panels]
    return [(label, lines) for label, lines in panels if lines]


def _lines(ax: Axes, numbers: Array, label: str, lines: Sequence[tuple[str, Array]]) -> None:
    every = max(1, len(numbers) // 10)
    for place, (name, values) in enumerate(lines):
        ax.plot(numbers, values, **style_of(place).options, markersize=3.5, markevery=every, label=name)
    ax.set(xlabel="round", ylabel=label, xlim=(float(numbers.min()) - 0.5, float(numbers.max()) + 0.5))
    ax.grid(alpha=0.3, linewidth=0.5)
    ax.spines[["top", "right"]].set_visible(False)


def _accuracy(ax: Axes, rows: Sequence[Mapping[str, Any]], baseline: float | None) -> None:
    mean, std = _series(rows, "accuracy", "mean"), _series(rows, "accuracy", "std")
    # An accuracy is never below 0, other scores may be.
    lowest = np.where(_series(rows, "accuracy", "worst10") < 0, -np.inf, 0)
    ax.fill_between(
        _series(rows, "round"),
        (mean - std).clip(min=lowest),
        (mean + std).clip(max=1),
        color=style_of(0).colour,  # of the mean, which is drawn first
        alpha=0.15,
        linewidth=0,
    )
    if baseline is not None:
        ax.axhline(baseline, color="0.35", linestyle=(0, (1, 1)), linewidth=1.5, label="local only")
