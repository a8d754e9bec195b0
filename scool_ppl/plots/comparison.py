"""One figure for several models: their learned graphs side by side, and their accuracy over the rounds."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.plots.history import evaluated, score_name
from scool_ppl.plots.matrix import draw_weights, weights_order
from scool_ppl.plots.style import new_figure, style_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_comparison(models: Mapping[str, tuple[CooperationGraph, Sequence[Mapping[str, Any]]]]) -> Figure:
    """Small multiples of the last weights (one order of clients for all), and accuracy curves of the mixed networks.

    models: name -> (graph, history).
    """
    columns = min(5, len(models))
    rows = math.ceil(len(models) / columns)
    width = max(6.4, 2.4 * columns)
    # The legend below the curves has as many columns as its names, of at most 0.09 inches a letter, leave room for.
    across = max(1, min(columns, int(width / (0.6 + 0.09 * max(len(name) for name in models)))))
    curves = 3.2 + 0.25 * math.ceil(len(models) / across)
    figure = new_figure((width, 2.6 * rows + curves))
    parts = figure.subfigures(2, 1, height_ratios=[2.6 * rows, curves], squeeze=False)
    top, bottom = parts[0, 0], parts[1, 0]
    axes = top.subplots(rows, columns, squeeze=False).flatten()
    order = weights_order(next(iter(models.values()))[0])
    for ax, (name, (graph, _)) in zip(axes, models.items(), strict=False):
        draw_weights(graph, ax, order=order, title=textwrap.fill(name, 22), colorbar=False)
        ax.set(xticks=[], yticks=[])
    for ax in axes[len(models) :]:
        ax.set_axis_off()
    ax = bottom.add_subplot()
    for place, (name, (_, history)) in enumerate(models.items()):
        some = evaluated(history)
        numbers = [row["round"] for row in some]
        values = [np.nan if row["accuracy"]["mean"] is None else row["accuracy"]["mean"] for row in some]
        every = max(1, len(numbers) // 10)
        ax.plot(numbers, values, **style_of(place).options, markersize=4, markevery=every, label=name)
    ax.set(xlabel="round", ylabel=f"{score_name(history)}, mean over clients")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(alpha=0.3)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=across, frameon=False, fontsize=9)
    return figure
