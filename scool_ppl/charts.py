"""Matrices of weights and curves of a run's history, drawn on the axes or figure given, never shown."""

from __future__ import annotations

import math
import os.path
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from scool_ppl.errors import InputError
from scool_ppl.graph import CooperationGraph, same_group
from scool_ppl.graph_files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.image import AxesImage
    from torch import Tensor

Array = NDArray[np.float64]


def axes_or_new(ax: Axes | None, size: tuple[float, float]) -> Axes:
    return new_figure(size).add_subplot() if ax is None else ax


def new_figure(size: tuple[float, float], engine: Literal["constrained", "compressed"] = "constrained") -> Figure:
    """A figure that pyplot does not know of, so that nothing global is changed and nothing has to be closed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    figure.set_layout_engine(engine, w_pad=0.08, h_pad=0.08)
    return figure


def short_names(names: Sequence[str]) -> list[str]:
    """The names without the beginning that all share, at most 12 letters each."""
    shared = os.path.commonprefix([*names]).rstrip("0123456789") if len(names) > 1 else ""  # noqa: RUF071
    labels = [name[len(shared) :] or name for name in names]
    return [label if len(label) <= 12 else label[:11] + "…" for label in labels]


def weights_order(graph: CooperationGraph) -> NDArray[np.int64]:
    """The clients sorted by true group, where known, then by block."""
    groups = np.zeros(graph.num_clients) if graph.groups is None else np.array(graph.groups)
    return np.lexsort((graph.blocks().numpy(), groups))


def draw_weights(
    graph: CooperationGraph,
    ax: Axes | None = None,
    *,
    order: Sequence[int] | NDArray[np.int64] | None = None,
    highest: float | None = None,
    title: str | None = None,
    colorbar: bool = True,
) -> Axes:
    """Draw E_q[Y] as a matrix [receiver, sender] with the ends of the blocks as lines; pairs not looked at are blank.

    order: the clients from the top; by default sorted by true group, where known, then by block.
    highest: the weight at the end of the colour scale, by default 1 for independent edges, else the heaviest.
    """
    ax = axes_or_new(ax, (5.2, 4.4))
    looked = graph.peers.dense(graph.peers.mask.double()).numpy() > 0
    heaviest = max(float(graph.weights.max()), 1e-12)
    image = _matrix(
        ax,
        graph,
        np.ma.masked_array(graph.dense().double().numpy(), ~looked),
        graph.blocks().numpy(),
        weights_order(graph) if order is None else np.asarray(order),
        highest if highest is not None else 1.0 if graph.kind == "edges" else heaviest,
    )
    if title is not None:
        ax.set_title(title)
    if colorbar:
        ax.figure.colorbar(image, ax=ax, label="cooperation weight", shrink=0.8)
    return ax


def _matrix(
    ax: Axes,
    graph: CooperationGraph,
    values: Array,
    blocks: NDArray[np.int64],
    order: NDArray[np.int64],
    highest: float,
) -> AxesImage:
    image = ax.imshow(values[np.ix_(order, order)], cmap="viridis", vmin=0, vmax=highest, interpolation="nearest")
    for end in np.flatnonzero(np.diff(blocks[order])) + 0.5:
        for line in (ax.axhline, ax.axvline):
            line(end, color="white", linewidth=1.2)
            line(end, color="black", linewidth=0.6, linestyle=(0, (4, 2)))
    legible = ax.get_window_extent().height * 72 / ax.figure.dpi >= 9 * len(order)
    labels = short_names(graph.names)
    ax.set_xticks(range(len(order)) if legible else [], [labels[i] for i in order] if legible else [], rotation=90)
    ax.set_yticks(range(len(order)) if legible else [], [labels[i] for i in order] if legible else [])
    ax.tick_params(labelsize=7, length=2)
    ax.set(xlabel="sender", ylabel="receiver")
    return image


def draw_weights_over_rounds(
    graphs: Mapping[int, CooperationGraph] | Sequence[CooperationGraph],
    figure: Figure | SubFigure | None = None,
    *,
    truth: Tensor | None = None,
    most: int = 7,
) -> Figure | SubFigure:
    """Draw the weights of several rounds in one order and on one colour scale, the truth (K, K), if known, last.

    graphs: by round, or one a round from 1. At most `most` of them are shown, evenly spaced, first and last included.
    The order is that of the last graph. The truth is shown as it is, for one-hot rows with its rows normalised.
    """
    rounds = list(graphs.items()) if isinstance(graphs, Mapping) else list(enumerate(graphs, start=1))
    if not rounds or most < 1:
        raise InputError(f"{len(rounds)} graphs and at most {most} panels, expected at least one of each")
    rounds = [rounds[i] for i in np.unique(np.linspace(len(rounds) - 1, 0, min(most, len(rounds))).round().astype(int))]
    last = rounds[-1][1]
    order = weights_order(last)
    truth = same_group(last.groups) if truth is None and last.groups is not None else truth
    panels = len(rounds) + (truth is not None)
    columns = min(panels, 4)
    shape = (math.ceil(panels / columns), columns)
    size = (2.6 * shape[1] + 1.0, 2.6 * shape[0] + 0.3)
    figure = new_figure(size, "compressed") if figure is None else figure
    axes = figure.subplots(*shape, squeeze=False, sharex=True, sharey=True)
    edges = all(graph.kind == "edges" for _, graph in rounds)
    highest = 1.0 if edges else max(1e-12, *(float(graph.weights.max()) for _, graph in rounds))
    for ax, (number, graph) in zip(axes.flat, rounds, strict=False):
        draw_weights(graph, ax, order=order, highest=highest, title=f"round {number}", colorbar=False)
    if truth is not None:
        ideal = truth.double().numpy()
        if last.kind == "rows":
            ideal = ideal / np.maximum(ideal.sum(axis=1, keepdims=True), 1e-12)
        own = np.eye(len(ideal), dtype=bool) & ~ideal.astype(bool)
        labels = last.blocks().numpy() if last.groups is None else np.array(last.groups)
        _matrix(axes.flat[panels - 1], last, np.ma.masked_array(ideal, own), labels, order, highest)
        axes.flat[panels - 1].set_title("truth")
    for ax in axes.flat[panels:]:
        ax.set_axis_off()
    for ax in axes.flat[:panels]:
        ax.label_outer()
    figure.colorbar(axes[0, 0].images[0], ax=axes, label="cooperation weight", shrink=0.8)
    return figure


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
        _lines(ax, numbers, label, lines)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if label == score_name(rows):
            _accuracy(ax, rows, numbers, baseline)
        if len(ax.lines) > 1:
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=8, frameon=False)
    return figure


def score_name(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the task of a history calls its score."""
    first: Any = rows[0]
    return str(first.get("score", "accuracy")) if isinstance(first, Mapping) else "accuracy"


def _panels(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, Array]]]]:
    """The panels of a history and the lines of each, without those that were never recorded."""
    mean, own = _series(rows, "accuracy", "mean"), _series(rows, "task_accuracy", "mean")
    panels: list[tuple[str, list[tuple[str, Array]]]] = [
        (
            score_name(rows),
            [
                ("mixed, mean ± std", mean),
                ("trained, before mixing", _series(rows, "accuracy_trained", "mean")),
                ("mixed, worst 10 %", _series(rows, "accuracy", "worst10")),
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
    styles = (("#0072B2", "-", "o"), ("#D55E00", "-.", "s"), ("#009E73", "--", "^"), ("#CC79A7", ":", "D"))
    for (name, values), (color, style, marker) in zip(lines, styles, strict=False):
        every = max(1, len(numbers) // 10)
        ax.plot(
            numbers, values, color=color, linestyle=style, marker=marker, markersize=3.5, markevery=every, label=name
        )
    ax.set(xlabel="round", ylabel=label, xlim=(float(numbers.min()) - 0.5, float(numbers.max()) + 0.5))
    ax.grid(alpha=0.3, linewidth=0.5)
    ax.spines[["top", "right"]].set_visible(False)


def _accuracy(ax: Axes, rows: Sequence[Mapping[str, Any]], numbers: Array, baseline: float | None) -> None:
    mean, std = _series(rows, "accuracy", "mean"), _series(rows, "accuracy", "std")
    # An accuracy is never below 0, other scores may be.
    lowest = np.where(_series(rows, "accuracy", "worst10") < 0, -np.inf, 0)
    ax.fill_between(
        numbers,
        (mean - std).clip(min=lowest),
        (mean + std).clip(max=1),
        color="#0072B2",
        alpha=0.15,
        linewidth=0,
    )
    if baseline is not None:
        ax.axhline(baseline, color="0.35", linestyle=(0, (1, 1)), linewidth=1.5, label="local only")


def save_figure(picture: Axes | Figure | SubFigure, path: str | Path) -> None:
    """Write the figure of `picture` to a .png, .pdf, .svg, ... file, replacing an old one in one step."""
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

    path = Path(path)
    figure: Any = picture.figure if isinstance(picture, Axes) else picture
    while isinstance(figure, SubFigure):
        figure = figure.figure
    known = figure.canvas.get_supported_filetypes()
    if path.suffix.lower().lstrip(".") not in known:
        raise InputError(
            f"picture '{path}' ends in '{path.suffix}', expected one of {', '.join(sorted(known))}; rename it"
        )
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)
