"""The picture of a posterior: a matrix for each thing that is known, in one order of clients."""

from __future__ import annotations

import torch

from scool_ppl.plots.posterior import draw_posterior
from tests.helpers.runs import graph


def test_a_matrix_for_each_thing_that_is_known() -> None:
    shown = graph(50)
    everything = draw_posterior(shown, shown.dense(), torch.full((3, 3), 0.25), torch.eye(3))
    titles = [ax.get_title() for ax in everything.axes if ax.get_title()]
    assert titles == ["P(learns from)", "P(learns from) by the prior alone", "P(in one block)"]
    everything.canvas.draw()
    assert len([ax for ax in draw_posterior(shown, shown.dense()).axes if ax.get_title()]) == 1
