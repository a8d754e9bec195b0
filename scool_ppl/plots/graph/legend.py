"""The legend below the picture of a graph: as many columns as fit, as many rows as it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from scool_ppl.plots.style import LETTER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE, _LINE = 8.0, 12.5
"""Size of the letters and height of a line, in points."""


class Entry(NamedTuple):
    """A line of the legend: the marker is left out where it has no colour."""

    label: str
    colour: str | None
    marker: str


def _columns(entries: Sequence[Entry], width: float) -> int:
    longest = max((len(entry.label) for entry in entries), default=1)
    return max(1, min(8, len(entries), int(width / (LETTER * _SIZE * longest + 30))))


def legend_height(entries: Sequence[Entry], width: float) -> float:
    """Points that the legend takes below a picture of this width in points."""
    return _LINE * (1.8 + math.ceil(len(entries) / _columns(entries, width)))


def draw_legend(ax: Axes, entries: Sequence[Entry], title: str) -> None:
    """Write the legend at the lower edge of the axes."""
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {"linestyle": "none", "markeredgecolor": "black", "markeredgewidth": 0.6, "markersize": 7}
    handles = [
        Line2D([], [], color=entry.colour or "white", marker=entry.marker, label=entry.label, **look)
        for entry in entries
    ]
    width = ax.get_window_extent().width * 72 / ax.figure.dpi
    ax.legend(
        handles=handles,
        title=title,
        loc="lower center",
        ncols=_columns(entries, width),
        frameon=False,
        fontsize=_SIZE,
        title_fontsize=_SIZE,
        columnspacing=1.2,
        handletextpad=0.3,
        borderaxespad=0.0,
    )
