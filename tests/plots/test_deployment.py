"""The picture of what is deployed: its bars are the weights, clients stand by group."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from scool_ppl.plots import draw_deployment, save_figure

WEIGHTS = torch.tensor([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5]])


def bars(figure):
    """By client from left to right, the heights of its pieces from the bottom up."""
    (axes,) = figure.axes
    steps = [patch.get_data() for patch in axes.patches]
    return [[values[place] - baseline[place] for values, _, baseline in steps] for place in range(len(WEIGHTS))]


def test_a_bar_is_cut_into_the_shares_of_the_candidates() -> None:
    figure = draw_deployment(WEIGHTS, ["local", "blocks"], ["a", "b", "c"])
    assert bars(figure) == [pytest.approx(row) for row in WEIGHTS.tolist()]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["local", "blocks"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["a", "b", "c"]


def test_clients_of_a_group_are_neighbours_with_a_line_between_groups() -> None:
    figure = draw_deployment(WEIGHTS, ["local", "blocks"], ["a", "b", "c"], groups=[1, 0, 1])
    assert bars(figure) == [pytest.approx(WEIGHTS[client].tolist()) for client in (1, 0, 2)]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["b", "a", "c"]
    assert [line.get_xdata()[0] for line in figure.axes[0].lines] == [0.5]


@pytest.mark.parametrize("clients", [1, 100])
def test_few_and_many_clients(clients, tmp_path) -> None:
    weights = torch.full((clients, 20), 0.05)
    figure = draw_deployment(weights, [f"candidate {c}" for c in range(20)], [f"client {i}" for i in range(clients)])
    save_figure(figure, tmp_path / "deployed.png")
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert all(not first.overlaps(second) for first, second in pairwise(boxes))
