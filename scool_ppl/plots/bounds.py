"""Bounds of several models on the same evidence, as distances below the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from scool_ppl.plots.style import PALETTE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_bounds(bounds: Mapping[str, float], *, near: float) -> Figure:
    """A dot a model, the best on top; models within `near` nats of it lie in the grey band and are not told apart."""
    order = sorted(bounds, key=lambda name: bounds[name])
    best = bounds[order[-1]]
    figure = new_figure((6.4, 1.2 + 0.3 * len(order)))
    ax = figure.add_subplot()
    ax.axvspan(-near, 0, color="0.9", label=f"within {near:g} nats of the best")
    ax.hlines(range(len(order)), [bounds[name] - best for name in order], 0, color="0.6", linewidth=1)
    ax.plot([bounds[name] - best for name in order], range(len(order)), "o", color=PALETTE[0])
    ax.set_yticks(range(len(order)), order)
    ax.set(xlabel=f"bound on log P(evidence | prior) below the best, {best:.1f} nats")
    ax.margins(y=0.12)
    ax.legend(loc="lower left", frameon=False, fontsize=8)
    return figure
