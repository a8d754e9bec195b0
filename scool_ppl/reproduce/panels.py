"""Rows of panels with lines in them, and the one legend below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scool_ppl.base.statistics import over_seeds
from scool_ppl.plots.style import new_figure, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Series = Mapping[str, tuple[Sequence[float], Sequence[Sequence[float]]]]
"""Label -> (places on the x axis, values by seed and place)."""


def panels(titles: Sequence[str], size: tuple[float, float] = (3.8, 3.1)) -> tuple[Figure, list[Axes]]:
    """A row of axes with titles."""
    figure = new_figure((size[0] * len(titles), size[1]))
    axes = list(figure.subplots(1, len(titles), squeeze=False)[0])
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, fontsize=10)
    return figure, axes


def draw_series(ax: Axes, series: Series, *, xlabel: str, ylabel: str) -> Axes:
    """Lines of means with bands of one standard deviation over the seeds."""
    for place, (label, (places, seeds)) in enumerate(series.items()):
        style = style_of(place)
        values = np.array(seeds, dtype=float)
        mean, spread = np.array([over_seeds(at.tolist(), population=True) for at in values.T]).T
        every = max(1, len(places) // 8)
        ax.plot(places, mean, **style.options, markevery=every, markersize=5, label=label)
        ax.fill_between(places, mean - spread, mean + spread, color=style.colour, alpha=0.15, linewidth=0)
    return finished(ax, xlabel, ylabel)


def finished(ax: Axes, xlabel: str, ylabel: str) -> Axes:
    """Labels, a grid, and whole numbers on the x axis."""
    from matplotlib.ticker import MaxNLocator

    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.grid(alpha=0.3, linewidth=0.5)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def with_legend(figure: Figure, more: Mapping[str, Any] | None = None) -> Figure:
    """One legend for all panels below them, in a strip that is added to the figure. more: label -> what is drawn."""
    known = dict(more or {})
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            known.setdefault(label, handle)
    if known:
        longest = max(len(label) for label in known)
        columns = max(1, min(len(known), int(figure.get_figwidth() / (0.6 + 0.075 * longest))))
        figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(known) // columns))
        figure.legend(
            known.values(), known.keys(), loc="outside lower center", ncols=columns, fontsize=8, frameon=False
        )
    return figure
