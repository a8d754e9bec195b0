"""How all pictures look: figures that pyplot does not know of, names, colours, files."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scool_ppl.base.files import replacing
from scool_ppl.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


Array = NDArray[np.float64]

PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#000000", "#CC79A7", "#F0E442"),
    *("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499"),
)
"""Okabe and Ito's colours, then Tol's muted ones: told apart by readers with any colour vision. The first seven are seen
as lines on white, and dark and light ones take turns, so that neighbours differ in grey, too."""

SHAPES = ("o", "s", "D", "p", "h", "^", "v", "8", "P", "X")
"""Shapes of nodes; those that have room for a name come first."""

LineStyle = str | tuple[int, tuple[int, ...]]

_LINES: tuple[LineStyle, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


class Style(NamedTuple):
    """How a line is drawn. Colour, line and marker all differ from line to line, so that a reader needs only one."""

    colour: str
    line: LineStyle
    marker: str

    @property
    def options(self) -> dict[str, Any]:
        """The same as options of matplotlib."""
        return {"color": self.colour, "linestyle": self.line, "marker": self.marker}


def style_of(place: int) -> Style:
    """Style of the line at a place; where there are more lines than colours, these come again with other lines."""
    count = len(_LINES)
    again = place // count
    return Style(PALETTE[place % count], _LINES[(place + again) % count], _MARKERS[(place + 2 * again) % count])


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
