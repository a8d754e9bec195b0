"""The posterior of a graph as matrices: who learns from whom, what the prior expects of a pair, who is in one block."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.plots.matrix import draw_weights, weights_order
from scool_ppl.plots.style import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_posterior(
    graph: CooperationGraph, probability: Tensor, expected: Tensor | None = None, together: Tensor | None = None
) -> Figure:
    """Probabilities (K, K) side by side, in one order of clients; those that are not known are left out."""
    panels = {
        "P(learns from)": probability,
        "P(learns from) by the prior alone": expected,
        "P(in one block)": together,
    }
    known = {title: values for title, values in panels.items() if values is not None}
    figure = new_figure((4.2 * len(known), 4.2))
    order = weights_order(graph)
    everybody = Peers.everybody(graph.num_clients, includes_self=True)
    for ax, (title, values) in zip(figure.subplots(1, len(known), squeeze=False)[0], known.items(), strict=True):
        shown = replace(graph, weights=values, peers=everybody, kind="edges")
        draw_weights(shown, ax, order=order, highest=1.0, title=title, colorbar=False)
    figure.colorbar(figure.axes[0].images[0], ax=figure.axes, label="probability", shrink=0.8)
    return figure
