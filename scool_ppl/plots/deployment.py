"""What is deployed: how much each client relies on each of its candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from scool_ppl.plots.style import PALETTE, new_figure, short_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_deployment(
    weights: Tensor, candidates: Sequence[str], names: Sequence[str], groups: Sequence[int] | None = None
) -> Figure:
    """A bar for each client, as high as 1, cut into the shares (K, C) of its candidates; sorted by group where known."""
    shares = weights.double().numpy()
    order = np.argsort(np.array(groups if groups is not None else [0] * len(names)), kind="stable")
    figure = new_figure((float(np.clip(2.6 + 0.2 * len(names), 5.0, 15)), 3.2))
    axes = figure.add_subplot()
    bottom, edges = np.zeros(len(names)), np.arange(len(names) + 1) - 0.5
    for place, candidate in enumerate(candidates):
        top = bottom + shares[order, place]
        colour = PALETTE[place % len(PALETTE)]
        axes.stairs(top, edges, baseline=bottom, fill=True, color=colour, linewidth=0, label=candidate)
        bottom = top
    axes.vlines(edges[1:-1], 0, 1, color="white", linewidth=min(1.5, 60 / len(names)))
    if groups is not None:
        sorted_groups = np.array(groups)[order]
        for last in np.flatnonzero(np.diff(sorted_groups)):
            axes.axvline(last + 0.5, color="black", linewidth=0.8)
    every = -(-len(names) // 40)
    shown = list(range(0, len(names), every))
    labels = short_names(names)
    axes.set_xticks(shown, [labels[order[place]] for place in shown], rotation=90, fontsize=8)
    axes.set(xlabel="client", ylabel="relies on", xlim=(-0.6, len(names) - 0.4), ylim=(0, 1))
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure
