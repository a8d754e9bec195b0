"""Names of clients in the picture of a graph: inside their nodes, or beside them where there is room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scool_ppl.plots.graph.layout import spacing
from scool_ppl.plots.style import LETTER, Array, ink, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INSIDE = 3
"""So many letters fit into a node."""
_SIDES = np.array([[0, -1], [0, 1], [1, 0], [-1, 0]])
"""Below, above, right, left."""


class _Written(NamedTuple):
    """The label of a client and its offset in points."""

    client: int
    text: str
    away: tuple[float, float]


def draw_labels(
    ax: Axes,
    labels: Sequence[str],
    places: Array,
    points: float,
    page: Array,
    colour: Sequence[str],
    outward: Array,
    diameter: float,
) -> None:
    """Short names inside the nodes, longer ones beside them where they fit: none hits a node or another name.

    places: (K, 2), on a page from its low to its high corner, in units of so many `points`. outward: (K, 2) directions
    in which there is room. diameter: of the nodes in points.
    """
    longest = max(len(label) for label in labels)
    inside = min(0.5 * diameter, 1.3 * diameter / longest, 10.0)
    if longest <= INSIDE and inside >= 4:
        for place, label, filled in zip(places, labels, colour, strict=True):
            ax.annotate(
                label, tuple(place), size=inside, color=ink(filled), ha="center", va="center_baseline", zorder=4
            )
    elif diameter >= 7:
        _draw_beside(ax, labels, places, points, page, outward, diameter)


def _draw_beside(
    ax: Axes, labels: Sequence[str], places: Array, points: float, page: Array, outward: Array, diameter: float
) -> None:
    """Labels in up to three lines, as wide as the nodes are apart, or a little wider if more of them fit so."""
    apart = spacing(places * points)
    size = float(np.clip(apart / 7, 5.5, 8.0))
    found: list[_Written] = []
    for width in (1.3, 0.9):
        letters = int(np.clip(width * apart / (LETTER * size), 10, 20))
        texts = [wrapped(label, letters, lines=3) for label in labels]
        fitting = list(_fitting(texts, points * places, points * page, outward, diameter, size))
        found = max(found, fitting, key=len)
    for client, text, away in found:
        written = ax.annotate(
            text,
            tuple(places[client]),
            away,
            textcoords="offset points",
            size=size,
            ha="center",
            va="center",
            linespacing=1.1,
            bbox={"boxstyle": "square,pad=0", "facecolor": "white", "alpha": 0.7, "linewidth": 0},
            zorder=4,
        )
        written.set_in_layout(False)  # it is inside the axes already


def _fitting(
    texts: Sequence[str], nodes: Array, page: Array, outward: Array, diameter: float, size: float
) -> Iterator[_Written]:
    """The texts that hit neither a node nor one before at some side of their node; outward comes first. In points."""
    taken = np.column_stack([nodes - diameter / 2, nodes + diameter / 2])
    for client, text in enumerate(texts):
        rows = text.split("\n")
        half = np.array([LETTER * size * max(map(len, rows)), 1.25 * size * len(rows)]) / 2
        for side in _SIDES[np.argsort(-_SIDES @ outward[client].round(6), kind="stable")]:
            away = side * (0.6 * diameter + half)
            low, high = nodes[client] + away - half, nodes[client] + away + half
            hit = ((taken[:, :2] < high) & (taken[:, 2:] > low)).all(axis=1).any()
            if not hit and (low >= page[0]).all() and (high <= page[1]).all():
                taken = np.vstack([taken, [*low, *high]])
                yield _Written(client, text, (float(away[0]), float(away[1])))
                break
