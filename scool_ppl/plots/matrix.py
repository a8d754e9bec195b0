"""Matrices of weights and curves of a run's history, drawn on the axes or figure given, never shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scool_ppl.data.federation import MANY
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.graph.scores import same_group
from scool_ppl.plots.style import Array, axes_or_new, new_figure, short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.image import AxesImage
    from torch import Tensor

BINS = 400
"""Of more than MANY clients so many rows and columns are drawn: means over neighbours in the order."""


def weights_order(graph: CooperationGraph) -> NDArray[np.int64]:
    """The clients sorted by true group, where known, then by what believed edges connect, those in no block last."""
    groups = np.zeros(graph.num_clients) if graph.groups is None else np.array(graph.groups)
    pieces = graph.connected_blocks().numpy()
    return np.lexsort((pieces, np.bincount(pieces)[pieces] == 1, groups))


def draw_weights(
    graph: CooperationGraph,
    ax: Axes | None = None,
    *,
    order: Sequence[int] | NDArray[np.int64] | None = None,
    blocks: NDArray[np.int64] | None = None,
    highest: float | None = None,
    title: str | None = None,
    colorbar: bool = True,
) -> Axes:
    """Draw E_q[Y] as a matrix [receiver, sender] with the ends of blocks as lines; pairs not looked at are blank.

    order: the clients from the top; by default sorted by true group, where known, then by block. A block is what believed
    edges connect, unless `blocks` (K,) are given.
    highest: the weight at the end of the colour scale, by default 1 for independent edges, else the heaviest.
    """
    ax = axes_or_new(ax, (5.2, 4.4))
    heaviest = max(float(graph.weights.max()), 1e-12)
    highest = highest if highest is not None else 1.0 if graph.kind == "edges" else heaviest
    order = weights_order(graph) if order is None else np.asarray(order)
    if graph.num_clients > MANY:
        means = averaged(graph.weights.double().numpy(), graph.peers, order, BINS)
        image = ax.imshow(means, cmap="viridis", vmin=0, vmax=highest, interpolation="nearest")
        ax.set(
            xticks=[], yticks=[], xlabel="sender", ylabel=f"receiver (means over {graph.num_clients / BINS:.3g} each)"
        )
    else:
        looked = graph.peers.dense(graph.peers.mask.double()).numpy() > 0
        found = graph.connected_blocks().numpy() if blocks is None else blocks
        values = np.ma.masked_array(graph.dense().double().numpy(), ~looked)
        image = _matrix(ax, graph, values, found, order, highest)
    if title is not None:
        ax.set_title(title)
    if colorbar:
        ax.figure.colorbar(image, ax=ax, label="cooperation weight", shrink=0.8)
    return ax


def averaged(weights: Array, peers: Peers, order: NDArray[np.int64], count: int) -> np.ma.MaskedArray[Any, Any]:
    """Means (count, count) of weights (K, M) over the looked-at pairs between consecutive clients of an order; masked where
    there are none.
    """
    bins = np.empty(len(order), dtype=np.int64)
    bins[order] = np.arange(len(order)) * count // len(order)
    receivers, columns, senders = (part.numpy() for part in peers.pairs())
    places, values = bins[receivers] * count + bins[senders], weights[receivers, columns]
    looked, sums = np.bincount(places, minlength=count**2), np.bincount(places, values, minlength=count**2)
    return np.ma.masked_array(sums / looked.clip(min=1), looked == 0).reshape(count, count)


def _matrix(
    ax: Axes,
    graph: CooperationGraph,
    values: Array,
    blocks: NDArray[np.int64],
    order: NDArray[np.int64],
    highest: float,
) -> AxesImage:
    image = ax.imshow(values[np.ix_(order, order)], cmap="viridis", vmin=0, vmax=highest, interpolation="nearest")
    ends = _ends(blocks[order])
    width = min(1.0, 12 / max(len(ends), 1))
    for end in ends:
        for line in (ax.axhline, ax.axvline):
            line(end, color="white", linewidth=1.2 * width)
            line(end, color="black", linewidth=0.6 * width, linestyle=(0, (4, 2)))
    legible = ax.get_window_extent().height * 72 / ax.figure.dpi >= 9 * len(order)
    labels = short_names(graph.names)
    ax.set_xticks(range(len(order)) if legible else [], [labels[i] for i in order] if legible else [], rotation=90)
    ax.set_yticks(range(len(order)) if legible else [], [labels[i] for i in order] if legible else [])
    ax.tick_params(labelsize=7, length=2)
    ax.set(xlabel="sender", ylabel="receiver")
    return image


def _ends(blocks: NDArray[np.int64]) -> Array:
    """Where blocks of several clients begin or end, in this order; none between two clients that are in no block."""
    several = np.bincount(blocks)[blocks] > 1
    changes = (np.diff(blocks) != 0) & (several[1:] | several[:-1])
    return np.asarray(np.flatnonzero(changes) + 0.5, dtype=float)


def draw_weights_over_rounds(
    graphs: Mapping[int, CooperationGraph] | Sequence[CooperationGraph],
    figure: Figure | SubFigure | None = None,
    *,
    truth: Tensor | None = None,
    most: int = 7,
) -> Figure | SubFigure:
    """Draw the weights of several rounds in one order and on one colour scale, the truth (K, K), if known, last.

    graphs: by round, or one a round from 1. At most `most` of them are shown, evenly spaced, first and last included.
    Order and blocks are those of the last graph. The truth is shown as it is, for one-hot rows with its rows normalised.
    """
    rounds = list(graphs.items()) if isinstance(graphs, Mapping) else list(enumerate(graphs, start=1))
    if not rounds or most < 1:
        raise InputError(f"{len(rounds)} graphs and at most {most} panels, expected at least one of each")
    rounds = [rounds[i] for i in np.unique(np.linspace(len(rounds) - 1, 0, min(most, len(rounds))).round().astype(int))]
    last = rounds[-1][1]
    order, found = weights_order(last), last.connected_blocks().numpy()
    if truth is None and last.groups is not None and last.num_clients <= MANY:
        truth = same_group(last.groups)
    panels = len(rounds) + (truth is not None)
    columns = min(panels, 4)
    shape = (math.ceil(panels / columns), columns)
    size = (2.6 * shape[1] + 1.0, 2.6 * shape[0] + 0.3)
    figure = new_figure(size, "compressed") if figure is None else figure
    axes = figure.subplots(*shape, squeeze=False, sharex=True, sharey=True)
    edges = all(graph.kind == "edges" for _, graph in rounds)
    highest = 1.0 if edges else max(1e-12, *(float(graph.weights.max()) for _, graph in rounds))
    for ax, (number, graph) in zip(axes.flat, rounds, strict=False):
        draw_weights(graph, ax, order=order, blocks=found, highest=highest, title=f"round {number}", colorbar=False)
    if truth is not None:
        ideal = truth.double().numpy()
        if last.kind == "rows":
            ideal = ideal / np.maximum(ideal.sum(axis=1, keepdims=True), 1e-12)
        own = np.eye(len(ideal), dtype=bool) & ~ideal.astype(bool)
        labels = found if last.groups is None else np.array(last.groups)
        _matrix(axes.flat[panels - 1], last, np.ma.masked_array(ideal, own), labels, order, highest)
        axes.flat[panels - 1].set_title("truth")
    for ax in axes.flat[panels:]:
        ax.set_axis_off()
    for ax in axes.flat[:panels]:
        ax.label_outer()
    figure.colorbar(axes[0, 0].images[0], ax=axes, label="cooperation weight", shrink=0.8)
    return figure
