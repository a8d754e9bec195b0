"""How all pictures look: figures that pyplot does not know of, names, colours, files."""

from __future__ import annotations

import io
import os.path
import re
import textwrap
from collections.abc import Sequence
from functools import cache
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

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#000000", "#CC79A7", "#F0E442")
"""Okabe and Ito's colours, told apart by readers with any colour vision. The first seven are seen as lines on white, and
dark and light ones take turns, so that neighbours differ in grey, too."""

SHAPES = ("o", "s", "D", "p", "h", "^", "v", "8", "P", "X")
"""Shapes of nodes; those that have room for a name come first."""

LETTER = 0.58
"""Width of most letters, in the size of the font."""

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


def colours(count: int) -> tuple[str, ...]:
    """So many colours: those of the palette, then whichever differs most from all before; after 40 they come again."""
    return tuple(_distinct()[place % len(_distinct())] for place in range(count))


def ink(paper: str) -> str:
    """Black or white, whichever is read on this colour."""
    from matplotlib.colors import to_rgb

    return "black" if float(np.dot((0.299, 0.587, 0.114), to_rgb(paper))) > 0.45 else "white"


@cache
def _distinct() -> tuple[str, ...]:
    """Of a cube of colours, neither pale, nor dark, nor glaring, the one farthest from those taken, again and again."""
    from matplotlib.colors import to_hex, to_rgb

    steps = np.linspace(0, 1, 11)
    cube = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    lightness, *chroma = _lab(cube).T
    cube = cube[(lightness > 30) & (lightness < 85) & (np.hypot(*chroma) < 80)]
    taken = [to_rgb(colour) for colour in PALETTE]
    seen, apart = _lab(cube), np.full(len(cube), np.inf)
    for place in range(40):
        if place >= len(taken):
            taken.append(tuple(cube[apart.argmax()]))
        apart = np.minimum(apart, np.linalg.norm(seen - _lab(np.array(taken[place])), axis=1))
    return tuple(to_hex(colour).upper() for colour in taken)


def _lab(colours: Array) -> Array:
    """CIE L*a*b* of sRGB colours (..., 3): its distances are about those that are seen."""
    light = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    share = light @ (matrix / matrix.sum(1, keepdims=True)).T
    root = np.where(share > 0.008856, np.cbrt(share), 7.787 * share + 16 / 116)
    x, y, z = np.moveaxis(root, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def axes_or_new(ax: Axes | None, size: tuple[float, float]) -> Axes:
    return new_figure(size).add_subplot() if ax is None else ax


def new_figure(
    size: tuple[float, float], engine: Literal["constrained", "compressed", "none"] = "constrained"
) -> Figure:
    """A figure that pyplot does not know of, so that nothing global is changed and nothing has to be closed.

    A notebook shows it all the same.
    """
    figure = _shown_figure()(figsize=size)
    if engine != "none":
        figure.set_layout_engine(engine, w_pad=0.08, h_pad=0.08)
    return figure


def png_of(figure: Figure, dpi: int = 80) -> bytes:
    """The figure as the bytes of a .png file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    return file.getvalue()


@cache
def _shown_figure() -> type[Figure]:
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """Notebooks show figures of pyplot by themselves, others as they ask for it."""

        def _repr_png_(self) -> bytes:
            return png_of(self)

    return ShownFigure


def short_names(names: Sequence[str], most: int = 12) -> list[str]:
    """The names without the words that all begin with; of longer ones than `most` letters the middle is left out.

    Names often differ at their end alone.
    """
    shared = os.path.commonprefix([*names]) if len(names) > 1 else ""  # noqa: RUF071
    numbered = all(re.match(r"\d|$", name[len(shared) :]) for name in names)
    shared = re.sub(r"\d*$" if numbered else r"\w*$", "", shared)  # words and numbers are not cut in two
    labels = [name[len(shared) :].strip() or name for name in names]
    tail = (most - 1) // 2
    return [label if len(label) <= most else f"{label[: most - 1 - tail]}…{label[-tail:]}" for label in labels]


def wrapped(label: str, letters: int, lines: int = 3) -> str:
    """The label in at most so many lines of so many letters, broken between words.

    Of what does not fit the middle is left out.
    """
    words = [word if len(word) <= letters else f"{word[: letters - 1]}…" for word in label.split()]
    rows = _rows_of(words, letters)
    if len(rows) > lines:
        last = " ".join(_rows_of(words[::-1], letters)[0].split()[::-1])
        rows = [*rows[: lines - 1], last]
        rows[-2] = rows[-2][: letters - 1].rstrip("… ") + "…"
    return "\n".join(rows)


def _rows_of(words: Sequence[str], letters: int) -> list[str]:
    return textwrap.wrap(" ".join(words), letters, break_long_words=False, break_on_hyphens=False)


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
