"""The graph as a picture, drawn on the axes given, never shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scool_ppl.errors import InputError
from scool_ppl.graph.belief import believed
from scool_ppl.graph.cooperation import CooperationGraph, Kind
from scool_ppl.plots.graph.labels import INSIDE, draw_labels
from scool_ppl.plots.graph.layout import component_places, layout, spacing
from scool_ppl.plots.graph.legend import Entry, draw_legend, legend_height
from scool_ppl.plots.style import SHAPES, Array, colours, new_figure, short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor


Positions = Mapping[str, tuple[float, float]]
_SEAT = "black"
"""Colour of components."""
_SINGLE = "white"
"""Colour of clients that are in no block with others."""
_MOST_EDGES = 30_000
"""Of more edges the heaviest are drawn: more are not told apart, and take their time."""


class _Blocks(NamedTuple):
    """Blocks as they are drawn: `pieces` (K,) that believed edges connect, those of several clients `shown`, by size."""

    pieces: NDArray[np.int64]
    names: dict[int, str]
    colour: list[str]

    @property
    def singles(self) -> int:
        return self.colour.count(_SINGLE)

    def outward(self, places: Array) -> Array:
        """From the middle of its block to each client, (K, 2)."""
        total = np.stack([np.bincount(self.pieces, places[:, axis]) for axis in (0, 1)], axis=1)
        outward: Array = places - (total / np.bincount(self.pieces)[:, None])[self.pieces]
        return outward


def draw_graph(
    graph: CooperationGraph,
    ax: Axes | None = None,
    *,
    positions: Positions | None = None,
    threshold: float | None = None,
    title: str | None = None,
) -> Axes:
    """Draw who learns from whom: colour = block, shape = true group (where known), arrows from sender to receiver.

    Edges are those that are believed; with a threshold those of greater weight, with 0 all. Their width and opacity grow
    with the weight, relative to 1 (independent edges) or to the heaviest. A block is what believed edges connect:
    clients in no block with others are white, those without any believed edge stand below. Components, seats without
    data, are stars among those who use them; edges are then from components to clients.
    """
    blocks, groups, places = _blocks_of(graph), _groups_of(graph), _places_of(graph, positions)
    labels = short_names(graph.names, 200)
    # Names beside the nodes need room that names inside them do not.
    margin, share = (0.18, 0.7) if max(map(len, labels)) <= INSIDE else (0.36, 0.45)
    seats = None if graph.components is None else _seats_of(graph.components, graph.kind, places, threshold)
    top = max(places[:, 1].max(), -1.0 if seats is None else seats.places[:, 1].max())
    page = np.array([[-1 - margin, places[:, 1].min() - margin], [1 + margin, top + margin]])
    side = float(np.clip(6.4 + 0.04 * (graph.num_clients - 20), 6.4, 11.0))
    width = 72 * side if ax is None else ax.get_window_extent().width * 72 / ax.figure.dpi
    entries = _entries(graph, blocks, groups, width)
    if ax is None:
        height = side * (page[1, 1] - page[0, 1]) / (page[1, 0] - page[0, 0]) + legend_height(entries, width) / 72
        # Filling the figure, so that its size in points is known before it is drawn.
        ax = new_figure((side, height + 0.3), "none").add_axes((0.01, 0.01, 0.98, 0.98 - 0.3 / (height + 0.3)))
    if title is not None:
        ax.set_title(title)
    points = _make_room(ax, page, entries)
    # Inferred places may be as near as they like: better that clients overlap than that nobody sees them.
    least = 3.0 if graph.positions is None else 11.0
    diameter = float(np.clip(share * spacing(places * points), least, 24.0))
    if seats is None:
        count = _draw_edges(ax, graph, places, blocks, diameter / points / 2, threshold)
    else:
        count = _draw_components(ax, seats, places, blocks, diameter)
    _draw_nodes(ax, places, blocks, groups, diameter)
    draw_labels(ax, labels, places, points, page, blocks.colour, blocks.outward(places), diameter)
    draw_legend(ax, entries, _summary(graph, blocks, count, threshold))
    return ax


def _places_of(graph: CooperationGraph, positions: Positions | None) -> Array:
    positions = layout(graph) if positions is None else positions
    missing = [name for name in graph.names if name not in positions]
    if missing:
        raise InputError(f"positions lack client '{missing[0]}', expected one per client; use layout(graph)")
    return np.array([positions[name] for name in graph.names], dtype=float)


def _blocks_of(graph: CooperationGraph) -> _Blocks:
    """Blocks are called by their number; of one that falls into several pieces, the second is b, the third c, ..."""
    pieces, numbers = graph.connected_blocks().numpy(), graph.blocks().numpy()
    sizes = np.bincount(pieces)
    names: dict[int, str] = {}
    seen: dict[int, int] = {}
    for piece in np.flatnonzero(sizes > 1).tolist():
        number = int(numbers[pieces == piece][0])
        again = seen[number] = seen.get(number, -1) + 1
        names[piece] = f"block {number}{chr(ord('a') + again % 26) if again else ''}"
    colour = dict(zip(names, colours(len(names)), strict=True))
    return _Blocks(pieces, names, [colour.get(piece, _SINGLE) for piece in pieces.tolist()])


def _groups_of(graph: CooperationGraph) -> NDArray[np.int64]:
    """The shape of each client: its true group, where there are not more groups than shapes."""
    groups = np.unique([0] * graph.num_clients if graph.groups is None else graph.groups, return_inverse=True)[1]
    return groups if groups.max() < len(SHAPES) else np.zeros_like(groups)


def _entries(graph: CooperationGraph, blocks: _Blocks, groups: NDArray[np.int64], width: float) -> list[Entry]:
    """Blocks, of many the largest that eight lines of this width in points have room for; the others; true groups."""
    sizes = np.bincount(blocks.pieces)
    largest = sorted(blocks.names, key=lambda piece: -sizes[piece])[: 8 * max(1, int(width / 100))]
    colour = dict(zip(blocks.pieces.tolist(), blocks.colour, strict=True))
    entries = [Entry(f"{blocks.names[piece]} ({sizes[piece]})", colour[piece], "o") for piece in sorted(largest)]
    if len(blocks.names) > len(largest):
        entries.append(Entry(f"{len(blocks.names) - len(largest)} more blocks", None, ""))
    if blocks.singles:
        entries.append(Entry(f"in no block ({blocks.singles})", _SINGLE, "o"))
    if graph.components is not None:
        entries.append(Entry(f"component, without data ({graph.components.shape[1]})", _SEAT, "*"))
    if graph.groups is not None and (groups.max() > 0 or len(set(graph.groups)) == 1):
        names = np.unique(graph.groups)
        entries += [Entry(f"true group {name}", "0.8", SHAPES[place]) for place, name in enumerate(names)]
    return entries


def _summary(graph: CooperationGraph, blocks: _Blocks, edges: int, threshold: float | None) -> str:
    """What the picture shows, as the title of its legend."""
    count, clients = len(blocks.names), graph.num_clients
    text = f"{count or 'no'} block{'s' * (count != 1)}, {clients} client{'s' * (clients > 1)}"
    if not edges:
        return f"{text}; no edges"
    believed = "w > 0.5" if graph.kind == "edges" else "believed edges"
    shown = believed if threshold is None else f"w > {threshold:.2g}"
    more = f", the {_MOST_EDGES} heaviest of {edges}" if edges > _MOST_EDGES else ""
    edges_are = "sender → receiver" if graph.components is None else "component to user"
    return f"{text}; {edges_are}, {shown}{more}"


def _make_room(ax: Axes, page: Array, entries: Sequence[Entry]) -> float:
    """Limits of the axes with the page, its low and its high corner, above the legend; returns the points of one unit."""
    ax.set_aspect("equal")
    ax.set_axis_off()
    box, scale = ax.get_window_extent(), 72 / ax.figure.dpi
    width, height = box.width * scale, box.height * scale
    below = legend_height(entries, width)
    points = float((np.array([width, max(height - below, 0.3 * height)]) / (page[1] - page[0])).min())
    ax.set(xlim=page[:, 0], ylim=(page[0, 1] - below / points, page[1, 1]))
    return points


def _draw_nodes(ax: Axes, places: Array, blocks: _Blocks, groups: NDArray[np.int64], diameter: float) -> None:
    for group in np.unique(groups):
        here = np.flatnonzero(groups == group)
        ax.scatter(
            places[here, 0],
            places[here, 1],
            s=diameter**2,
            c=[blocks.colour[client] for client in here],
            marker=SHAPES[group],
            edgecolors="black",
            linewidths=min(0.8, diameter / 15),
            zorder=3,
        )


class _Seats(NamedTuple):
    """Components: how much each client uses each (K, G), which of that is drawn, and where they stand (G, 2)."""

    use: Array
    drawn: NDArray[np.bool_]
    places: Array


def _seats_of(shares: Tensor, kind: Kind, places: Array, threshold: float | None) -> _Seats:
    use = shares.double().numpy()
    drawn = (believed(shares, kind) if threshold is None else shares > threshold).numpy()
    return _Seats(use, drawn, component_places(use * drawn, places))


def _draw_components(ax: Axes, components: _Seats, places: Array, blocks: _Blocks, diameter: float) -> int:
    """Draw components among their users, and lines to these; returns how many."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgb

    use, middle = components.use, components.places
    clients, seats = np.nonzero(components.drawn)
    strength = use[clients, seats] / max(float(use.max()), 1e-12)
    colour = np.array([to_rgb(each) if each != _SINGLE else to_rgb("0.45") for each in blocks.colour])
    lines = LineCollection(
        list(np.stack([middle[seats], places[clients]], axis=1)),
        colors=np.column_stack([colour[clients], 0.15 + 0.7 * strength]),
        linewidths=0.3 + 1.5 * strength,
        zorder=1,
    )
    ax.add_collection(lines, autolim=False)
    across, up = middle.T
    ax.scatter(across, up, s=1.3 * diameter**2, c=_SEAT, marker="*", edgecolors="white", linewidths=0.5, zorder=3.5)
    return len(clients)


def _draw_edges(
    ax: Axes, graph: CooperationGraph, places: Array, blocks: _Blocks, radius: float, threshold: float | None
) -> int:
    """Draw edges bent, so that both directions of a pair are seen; returns how many there are."""
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.colors import to_rgb

    receivers, senders, values = (part.numpy() for part in graph.edges(threshold))
    scale = 1.0 if graph.kind == "edges" else float(values.max(initial=1e-12))
    order = np.argsort(values, kind="stable")
    order = order[receivers[order] != senders[order]]
    count, order = len(order), order[-_MOST_EDGES:]
    receivers, senders, share = receivers[order], senders[order], np.clip(values[order] / scale, 0, 1)
    span = places[receivers] - places[senders]
    length = np.linalg.norm(span, axis=1, keepdims=True).clip(1e-9)
    along = span / length
    begin, end = places[senders] + along * radius, places[receivers] - along * 1.15 * radius
    bend = (begin + end) / 2 + 0.13 * length * np.stack([-along[:, 1], along[:, 0]], axis=1)
    t = np.linspace(0, 1, 13)[:, None, None]
    curves = ((1 - t) ** 2 * begin + 2 * t * (1 - t) * bend + t**2 * end).swapaxes(0, 1)
    colour, between = np.array([to_rgb(colour) for colour in blocks.colour]), np.array(to_rgb("0.45"))
    inside = blocks.pieces[receivers] == blocks.pieces[senders]
    crowding = min(1.0, (400 / max(len(order), 1)) ** 0.75)
    opacity = (0.1 + 0.7 * share) * max(crowding, 0.05)
    rgba = np.column_stack([np.where(inside[:, None], colour[senders], between), opacity])
    widths = (0.3 + 1.5 * share) * max(crowding, 0.4)
    ax.add_collection(LineCollection(list(curves), colors=rgba, linewidths=widths, zorder=1), autolim=False)
    if 0 < len(order) <= 1000:
        towards = end - curves[:, -3]
        towards /= np.linalg.norm(towards, axis=1, keepdims=True).clip(1e-9)
        across = np.stack([-towards[:, 1], towards[:, 0]], axis=1)
        size = np.minimum((0.45 if len(order) < 300 else 0.35) * radius, 0.03) * (0.5 + 0.5 * share[:, None])
        heads = np.stack([end, end - size * (2 * towards - 0.8 * across), end - size * (2 * towards + 0.8 * across)], 1)
        ax.add_collection(PolyCollection(list(heads), facecolors=rgba, linewidths=0, zorder=2), autolim=False)
    return count
