"""The graph as a picture, drawn on the axes given, never shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from scool_ppl.errors import InputError
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.plots.style import PALETTE, SHAPES, Array, axes_or_new, short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Positions = Mapping[str, tuple[float, float]]


def layout(graph: CooperationGraph, *, seed: int = 0) -> dict[str, tuple[float, float]]:
    """A place in [-1, 1]^2 for each client: blocks on a circle, apart; a spring layout inside each block.

    A graph with positions of its own (a latent space) is drawn at them.
    """
    if graph.positions is not None:
        return _fitted(graph.names, graph.positions.double().numpy())
    blocks = graph.blocks().numpy()
    radii = np.sqrt(np.bincount(blocks))
    centres = _circle(radii)
    weights = graph.dense().double().numpy().clip(min=0)
    places = np.zeros((len(blocks), 2))
    for block, radius in enumerate(radii):
        members = np.flatnonzero(blocks == block)
        places[members] = centres[block] + 0.8 * radius * _springs(weights[np.ix_(members, members)], seed)
    return _fitted(graph.names, places)


def _fitted(names: Sequence[str], places: Array) -> dict[str, tuple[float, float]]:
    """The places moved and scaled into [-1, 1]^2."""
    places = places - (places.max(axis=0) + places.min(axis=0)) / 2
    places = places / max(float(np.abs(places).max()), 1e-12)
    return {name: (float(x), float(y)) for name, (x, y) in zip(names, places, strict=True)}


def _circle(radii: Array) -> Array:
    """Centres of discs on a circle just large enough to keep them apart, clockwise from the top."""
    if len(radii) == 1:
        return np.zeros((1, 2))
    angles = np.pi / 2 - 2 * np.pi * (np.cumsum(radii) - radii / 2) / radii.sum()
    unit = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    apart = np.linalg.norm(unit[:, None] - unit, axis=2) + np.eye(len(radii))
    needed = (radii[:, None] + radii) / apart * (1 - np.eye(len(radii)))
    centres: Array = 1.15 * needed.max() * unit
    return centres


def _springs(weights: Array, seed: int) -> Array:
    """Places (n, 2) in the unit disc by a few spring iterations from a sunflower's pattern."""
    count = len(weights)
    if count == 1:
        return np.zeros((1, 2))
    turns = np.arange(count) * (2 * np.pi / count if count < 8 else np.pi * (3 - math.sqrt(5))) + np.pi / 2
    reach = np.ones(count) if count < 8 else np.sqrt((np.arange(count) + 0.5) / count)
    jitter = np.random.default_rng(seed).normal(scale=0.02, size=(count, 2))
    places = np.stack([reach * np.cos(turns), reach * np.sin(turns)], axis=1) + jitter
    network = nx.from_numpy_array((weights + weights.T) / max(2 * float(weights.max()), 1e-12))
    sprung = nx.spring_layout(network, pos=dict(enumerate(places)), iterations=30, scale=None, seed=seed)
    places = np.array([sprung[node] for node in range(count)])
    places -= places.mean(axis=0)
    return places / max(float(np.linalg.norm(places, axis=1).max()), 1e-12)


def draw_graph(
    graph: CooperationGraph,
    ax: Axes | None = None,
    *,
    positions: Positions | None = None,
    threshold: float = 0.1,
    title: str | None = None,
) -> Axes:
    """Draw who learns from whom: colour = block, shape = true group (where known), arrows from sender to receiver.

    Width and opacity of an edge grow with its weight relative to 1 (independent edges) or to the heaviest; edges
    below `threshold` on this scale are left out.
    """
    ax = axes_or_new(ax, (6.4, 6.4))
    positions = layout(graph) if positions is None else positions
    missing = [name for name in graph.names if name not in positions]
    if missing:
        raise InputError(f"positions lack client '{missing[0]}', expected one per client; use layout(graph)")
    places = np.array([positions[name] for name in graph.names], dtype=float)
    blocks = graph.blocks().numpy()
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.set(xlim=(-1.15, 1.15), ylim=(-1.5, 1.15))
    if title is not None:
        ax.set_title(title)
    points = min(ax.get_window_extent().width / 2.3, ax.get_window_extent().height / 2.65) * 72 / ax.figure.dpi
    # Inferred places may be as near as they like: better that clients overlap than that nobody sees them.
    diameter = max(_diameter(places, points), 0.0 if graph.positions is None else 11.0)
    lightest = _draw_edges(ax, graph, places, blocks, diameter / points / 2, threshold)
    groups = (
        np.zeros(len(blocks), dtype=int) if graph.groups is None else np.unique(graph.groups, return_inverse=True)[1]
    )
    for group in np.unique(groups):
        here = groups == group
        ax.scatter(
            places[here, 0],
            places[here, 1],
            s=diameter**2,
            c=[PALETTE[block % len(PALETTE)] for block in blocks[here]],
            marker=SHAPES[group % len(SHAPES)],
            edgecolors="black",
            linewidths=min(0.8, diameter / 15),
            zorder=3,
        )
    _draw_labels(ax, graph.names, places, blocks, diameter)
    _graph_legend(ax, graph, blocks, lightest)
    return ax


def _diameter(places: Array, points: float) -> float:
    """Diameter of a node in points: as large as the nearest clients allow, but for a few pairs, within reason."""
    if len(places) == 1:
        return 24.0
    apart = np.linalg.norm(places[:, None] - places, axis=2) + 1e9 * np.eye(len(places))
    return float(np.clip(0.7 * points * np.quantile(apart.min(axis=1), 0.1), 3.0, 24.0))


def _draw_edges(
    ax: Axes, graph: CooperationGraph, places: Array, blocks: NDArray[np.int64], radius: float, threshold: float
) -> float | None:
    """Draw edges bent, so that both directions of a pair are seen; returns the threshold if any reach it."""
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.colors import to_rgb

    receivers, senders, values = (part.numpy() for part in graph.edges(0))
    scale = 1.0 if graph.kind == "edges" else float(values.max(initial=1e-12))
    heavy = (values >= threshold * scale) & (receivers != senders)
    order = np.flatnonzero(heavy)[np.argsort(values[heavy], kind="stable")]
    receivers, senders, share = receivers[order], senders[order], np.clip(values[order] / scale, 0, 1)
    span = places[receivers] - places[senders]
    length = np.linalg.norm(span, axis=1, keepdims=True).clip(1e-9)
    along = span / length
    begin, end = places[senders] + along * radius, places[receivers] - along * 1.15 * radius
    bend = (begin + end) / 2 + 0.13 * length * np.stack([-along[:, 1], along[:, 0]], axis=1)
    t = np.linspace(0, 1, 13)[:, None, None]
    curves = ((1 - t) ** 2 * begin + 2 * t * (1 - t) * bend + t**2 * end).swapaxes(0, 1)
    colours = np.array([to_rgb(colour) for colour in (*PALETTE, "0.45")])
    inside = blocks[receivers] == blocks[senders]
    crowding = min(1.0, (400 / max(len(order), 1)) ** 0.75)
    rgba = np.column_stack(
        [colours[np.where(inside, blocks[senders] % len(PALETTE), -1)], (0.1 + 0.7 * share) * max(crowding, 0.05)]
    )
    widths = (0.3 + 1.5 * share) * max(crowding, 0.4)
    ax.add_collection(LineCollection(list(curves), colors=rgba, linewidths=widths, zorder=1), autolim=False)
    if 0 < len(order) <= 1000:
        towards = end - curves[:, -3]
        towards /= np.linalg.norm(towards, axis=1, keepdims=True).clip(1e-9)
        across = np.stack([-towards[:, 1], towards[:, 0]], axis=1)
        size = np.minimum(0.55 * radius, 0.03) * (0.5 + 0.5 * share[:, None])
        heads = np.stack([end, end - size * (2 * towards - 0.8 * across), end - size * (2 * towards + 0.8 * across)], 1)
        ax.add_collection(PolyCollection(list(heads), facecolors=rgba, linewidths=0, zorder=2), autolim=False)
    return threshold * scale if len(order) else None


def _draw_labels(ax: Axes, names: Sequence[str], places: Array, blocks: NDArray[np.int64], diameter: float) -> None:
    """Short names inside the nodes, longer ones below; none where they would be illegible."""
    from matplotlib.colors import to_rgb

    labels = short_names(names)
    longest = max(len(label) for label in labels)
    below = longest > 3 and diameter >= 14
    size = 8.0 if below else min(0.5 * diameter, 1.3 * diameter / longest, 10.0)
    if size < 4:
        return
    for place, label, block in zip(places, labels, blocks, strict=True):
        brightness = float(np.dot((0.299, 0.587, 0.114), to_rgb(PALETTE[block % len(PALETTE)])))
        ax.annotate(
            label,
            tuple(place),
            (0, -0.75 * diameter if below else 0),
            textcoords="offset points",
            size=size,
            color="black" if below or brightness > 0.45 else "white",
            ha="center",
            va="top" if below else "center_baseline",
            bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "alpha": 0.7, "linewidth": 0} if below else None,
            zorder=4,
        )


def _graph_legend(ax: Axes, graph: CooperationGraph, blocks: NDArray[np.int64], lightest: float | None) -> None:
    from matplotlib.lines import Line2D

    sizes = np.bincount(blocks)
    look: dict[str, Any] = {"linestyle": "none", "markeredgecolor": "black", "markeredgewidth": 0.6, "markersize": 7}
    handles = [
        Line2D([], [], color=PALETTE[block % len(PALETTE)], marker="o", label=f"block {block} ({size})", **look)
        for block, size in enumerate(sizes if len(sizes) <= 8 else [])
    ]
    groups = np.unique([] if graph.groups is None else graph.groups)
    handles += [
        Line2D([], [], color="white", marker=SHAPES[index % len(SHAPES)], label=f"true group {group}", **look)
        for index, group in enumerate(groups if len(groups) <= 8 else [])
    ]
    title = f"{len(sizes)} block{'s' * (len(sizes) > 1)}, {len(blocks)} client{'s' * (len(blocks) > 1)}"
    title += "; no edges" if lightest is None else f"; sender → receiver, w ≥ {lightest:.2g}"
    ax.legend(
        handles=handles,
        title=title,
        loc="lower center",
        ncols=4,
        frameon=False,
        fontsize=8,
        title_fontsize=8,
        columnspacing=1.2,
        handletextpad=0.3,
        borderaxespad=0.0,
    )
