"""Plots: pictures of graphs, weights, histories, comparisons and federations; drawn on the axes given, never shown."""

from scool_ppl.plots.bounds import draw_bounds
from scool_ppl.plots.comparison import draw_comparison
from scool_ppl.plots.deployment import draw_deployment
from scool_ppl.plots.federation import draw_federation
from scool_ppl.plots.graph.drawing import draw_graph
from scool_ppl.plots.graph.layout import layout
from scool_ppl.plots.history import draw_history
from scool_ppl.plots.matrix import draw_weights, draw_weights_over_rounds
from scool_ppl.plots.posterior import draw_posterior
from scool_ppl.plots.style import save_figure

__all__ = [
    "draw_bounds",
    "draw_comparison",
    "draw_deployment",
    "draw_federation",
    "draw_graph",
    "draw_history",
    "draw_posterior",
    "draw_weights",
    "draw_weights_over_rounds",
    "layout",
    "save_figure",
]
