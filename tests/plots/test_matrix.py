"""Weights as matrices: the numbers shown are those of the graph, in one order and on one scale."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.graph.scores import same_group
from scool_ppl.plots.matrix import draw_weights, draw_weights_over_rounds, weights_order
from tests.helpers.pictures import GROUPS, apart, arranged, grouped, on_page


def test_image_is_the_ordered_matrix() -> None:
    graph = grouped()
    order = [i for group in range(4) for i in range(20) if GROUPS[i] == group]
    (image,) = draw_weights(graph).images
    shown = image.get_array()
    assert shown is not None
    expected = graph.dense().numpy()[np.ix_(order, order)]
    assert np.array_equal(np.ma.getdata(shown), expected)
    assert np.array_equal(np.ma.getmaskarray(shown), np.eye(20, dtype=bool))
    assert image.get_clim() == (0, 1)


def test_block_boundaries_are_drawn() -> None:
    ax = draw_weights(grouped((0, 0, 1, 1, 1, 2)))
    assert {float(line.get_ydata()[0]) for line in ax.lines if line.get_xdata()[0] == 0} == {1.5, 4.5}  # type: ignore[index,arg-type]
    assert ax.get_xlabel() == "sender"
    assert ax.get_ylabel() == "receiver"
    assert [label.get_text() for label in ax.get_yticklabels()] == list("012345")


def test_between_clients_in_no_block_there_are_no_lines() -> None:
    ax = draw_weights(grouped((0, 0, 1, 2, 3, 4, 4)))
    assert {float(line.get_ydata()[0]) for line in ax.lines if line.get_xdata()[0] == 0} == {1.5, 4.5}  # type: ignore[index,arg-type]
    assert not draw_weights(grouped(tuple(range(30)))).lines


def test_rounds_share_order_and_scale_and_end_with_the_truth() -> None:
    graphs = {r: grouped(seed=r, kind="point") for r in (1, 5, 10)}
    figure = draw_weights_over_rounds(graphs)
    panels = [ax for ax in figure.axes if ax.images]
    assert [ax.get_title() for ax in panels] == ["round 1", "round 5", "round 10", "truth"]
    order = np.argsort(GROUPS, kind="stable")
    drawn = [graphs[r].dense() for r in (1, 5, 10)] + [same_group(GROUPS)]
    for ax, matrix in zip(panels, drawn, strict=True):
        shown = ax.images[0].get_array()
        assert shown is not None
        assert np.array_equal(np.ma.getdata(shown), matrix.numpy()[np.ix_(order, order)])
    limits = {ax.images[0].get_clim() for ax in panels}
    assert limits == {(0.0, max(float(graph.weights.max()) for graph in graphs.values()))}


def test_rounds_have_lines_where_the_last_graph_has_blocks() -> None:
    """Early graphs believe in other edges, or in none yet: lines that move say nothing."""
    graphs = [CooperationGraph(torch.zeros(20, 20), grouped().names, Peers.everybody(20)), grouped()]
    panels = [ax for ax in draw_weights_over_rounds(graphs).axes if ax.images]
    assert [len(ax.lines) for ax in panels] == [12] * 3


def test_many_rounds_are_thinned_and_no_truth_is_no_panel() -> None:
    figure = draw_weights_over_rounds([grouped(seed=r, groups=(0, 1)) for r in range(30)], most=4)
    assert [ax.get_title() for ax in figure.axes if ax.images] == [
        "round 1",
        "round 11",
        "round 20",
        "round 30",
        "truth",
    ]
    blind = draw_weights_over_rounds([CooperationGraph(torch.zeros(2, 2), ("a", "b"), Peers.everybody(2))])
    assert [ax.get_title() for ax in blind.axes if ax.images] == ["round 1"]
    with pytest.raises(InputError, match="0 graphs"):
        draw_weights_over_rounds([])


def test_clients_are_sorted_by_true_group_and_by_block_within_it() -> None:
    blocks = torch.nn.functional.one_hot(torch.tensor([1, 0, 0, 1, 0]))
    graph = grouped((1, 1, 0, 0, 0), memberships=blocks)
    assert graph.connected_blocks().tolist() == [0, 1, 2, 3, 2]
    assert weights_order(graph).tolist() == [2, 4, 3, 0, 1], "those in no block last"


@pytest.mark.parametrize("count", [1, 2, 20, 100])
def test_names_are_written_where_they_are_legible(count: int) -> None:
    ax = draw_weights(grouped(tuple(i % 4 for i in range(count))))
    figure = arranged(ax.figure)
    assert ax.images[0].get_array().shape == (count, count)  # type: ignore[union-attr]
    for axis in (ax.xaxis, ax.yaxis):
        boxes = [label.get_window_extent() for label in axis.get_ticklabels() if label.get_text()]
        assert len(boxes) == (count if count <= 20 else 0)
        assert apart(boxes)
        assert on_page(figure, [*boxes, axis.label.get_window_extent()])
    assert figure.axes[1].get_ylabel() == "cooperation weight"


def test_weights_are_drawn_on_the_axes_and_the_figure_given() -> None:
    left, right = Figure().subplots(1, 2)
    assert draw_weights(grouped(), right, colorbar=False) is right
    assert not left.images
    half, other = Figure().subfigures(1, 2)
    assert draw_weights_over_rounds([grouped()], half) is half
    assert half.axes
    assert not other.axes


def test_many_clients_are_averaged_over_the_pairs_that_were_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in {"MANY": 3, "BINS": 2}.items():
        monkeypatch.setattr(f"scool_ppl.plots.matrix.{name}", number)
    senders = torch.tensor([[1, 2], [0, 3], [3, 0], [2, 1]])
    weights = torch.tensor([[0.2, 0.4], [0.6, 0.5], [1.0, 0.0], [0.5, 0.3]])
    mask = torch.tensor([[True, True], [True, True], [True, False], [True, False]])
    graph = CooperationGraph(weights, ("a", "b", "c", "d"), Peers(mask, senders))
    shown = draw_weights(graph, order=[0, 1, 2, 3]).images[0].get_array()
    assert isinstance(shown, np.ma.MaskedArray)
    assert shown.filled(-1).tolist() == pytest.approx(np.array([[0.4, 0.45], [-1.0, 0.75]]))
