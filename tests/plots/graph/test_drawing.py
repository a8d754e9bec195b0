"""The picture of a graph: nodes, edges, labels and legend are those of the graph, and nothing is cut off or covered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.plots.graph.drawing import draw_graph
from scool_ppl.plots.graph.layout import layout
from scool_ppl.plots.style import PALETTE, SHAPES
from tests.helpers.pictures import GROUPS, apart, arranged, extents, grouped, nodes_of, on_page


def legend_of(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def edges_of(ax: Any) -> LineCollection:
    return next(collection for collection in ax.collections if isinstance(collection, LineCollection))


def title_of(ax: Any) -> str:
    return str(ax.get_legend().get_title().get_text())


def test_edges_drawn_are_those_that_are_believed_or_above_the_threshold() -> None:
    graph = grouped()
    graph = replace(graph, weights=torch.where(graph.weights < 0.05, 0.45, graph.weights))
    ax = draw_graph(graph)
    assert len(edges_of(ax).get_segments()) == int((graph.weights > 0.5).sum()) == 80
    assert title_of(ax).endswith("w > 0.5")
    assert len(edges_of(draw_graph(graph, threshold=0.4)).get_segments()) == int((graph.weights > 0.4).sum()) > 80
    assert len(edges_of(draw_graph(graph, threshold=0.0)).get_segments()) == 380
    widths = np.asarray(edges_of(ax).get_linewidth())
    order = np.sort(graph.weights[graph.weights >= 0.5].numpy())
    assert np.corrcoef(widths, order)[0, 1] > 0.999


def test_light_rows_are_drawn_relative_to_the_heaviest() -> None:
    weights = torch.full((50, 50), 0.02)
    names = tuple(map(str, range(50)))
    fedavg = CooperationGraph(weights, names, Peers.everybody(50), kind="point")
    assert len(edges_of(draw_graph(fedavg)).get_segments()) == 50 * 49


def test_an_edge_runs_from_sender_to_receiver() -> None:
    weights = torch.tensor([[0.0, 0.0], [0.9, 0.0]])
    graph = CooperationGraph(weights, ("a", "b"), Peers.everybody(2))
    (segment,) = edges_of(draw_graph(graph, positions={"a": (-1, 0), "b": (1, 0)})).get_segments()
    assert segment[0, 0] < -0.8
    assert segment[-1, 0] > 0.8


def test_nodes_have_the_colour_of_their_block_and_the_shape_of_their_group() -> None:
    halves = torch.arange(20) // 10
    graph = replace(grouped(), weights=(0.9 * (halves[:, None] == halves)).fill_diagonal_(0))
    positions = layout(graph)
    ax = draw_graph(graph, positions=positions)
    nodes = nodes_of(ax)
    assert len(nodes) == 4
    assert len({c.get_paths()[0].vertices.tobytes() for c in nodes}) == 4
    for group, collection in enumerate(nodes):
        members = [i for i in range(20) if GROUPS[i] == group]
        assert np.allclose(collection.get_offsets(), [positions[f"client-{i}"] for i in members])
        assert np.allclose(collection.get_facecolors(), [to_rgba(PALETTE[i // 10]) for i in members])
    assert sorted(text.get_text() for text in ax.texts) == sorted(map(str, range(20)))


def test_graph_without_edges_says_so() -> None:
    graph = CooperationGraph(torch.zeros(3, 3), ("a", "b", "c"), Peers.everybody(3))
    ax = draw_graph(graph)
    assert len(edges_of(ax).get_segments()) == 0
    assert title_of(ax) == "no blocks, 3 clients; no edges"
    assert legend_of(ax) == ["in no block (3)"]


def test_positions_must_be_complete() -> None:
    with pytest.raises(InputError, match="positions lack client 'client-1'"):
        draw_graph(grouped(), positions={"client-0": (0, 0)})


@pytest.mark.parametrize(("count", "blocks"), [(1, 1), (2, 1), (20, 4), (100, 4), (100, 12), (100, 30), (100, 100)])
def test_every_client_is_seen_inside_the_picture_and_beside_the_legend(count: int, blocks: int) -> None:
    groups = tuple(i % blocks for i in range(count))
    ax = draw_graph(grouped(groups, memberships=torch.nn.functional.one_hot(torch.tensor(groups))))
    figure = arranged(ax.figure)
    boxes = extents(ax)
    assert len(boxes) == count
    assert len({(round(box.x0), round(box.y0)) for box in boxes}) == count, "clients lie on one another"
    legend = ax.get_legend()
    assert legend is not None
    below = legend.get_window_extent()
    assert on_page(figure, [*boxes, below])
    assert not any(box.overlaps(below) for box in boxes)
    assert apart(boxes)
    assert len(ax.texts) == count
    assert apart([text.get_window_extent() for text in legend.get_texts()])
    assert max(figure.get_size_inches()) <= 13
    several = [group for group in sorted(set(groups)) if groups.count(group) > 1]
    assert legend_of(ax) == [
        *(f"block {group} ({groups.count(group)})" for group in several),
        *([] if several else [f"in no block ({count})"]),
        *(f"true group {group}" for group in (sorted(set(groups)) if blocks <= len(SHAPES) else [])),
    ]
    filled = {tuple(colour) for collection in nodes_of(ax) for colour in collection.get_facecolors()}  # type: ignore[union-attr]
    assert len(filled) == max(len(several), 1), "no two blocks share a colour"


def test_more_blocks_than_a_legend_names_are_counted() -> None:
    groups = (*(i // 2 for i in range(100)), 0, 49)
    graph = replace(grouped(groups), groups=None)
    text = legend_of(draw_graph(graph))
    assert len(text) == 49
    assert text[0] == "block 0 (3)"
    assert "block 49 (3)" in text
    assert text[-1] == "2 more blocks"
    narrow = legend_of(draw_graph(graph, Figure(figsize=(4, 6)).add_subplot()))
    assert len(narrow) == 17
    assert narrow[-1] == "34 more blocks"


def test_who_shares_a_block_without_edges_is_drawn_apart() -> None:
    """A block model puts all whom nobody learns from into one block: that is no block to look at."""
    weights = torch.full((9, 9), 0.03)
    weights[:3, :3] = weights[3:5, 3:5] = weights[7:, 7:] = 0.9
    weights[5, 0] = 0.8  # in no block, but not without edges
    memberships = torch.nn.functional.one_hot(torch.tensor([0, 0, 0, 1, 1, 1, 1, 1, 1]))
    graph = CooperationGraph(weights, tuple("abcdefghi"), Peers.everybody(9), memberships=memberships)
    ax = draw_graph(graph)
    assert legend_of(ax) == ["block 0 (3)", "block 1 (2)", "block 1b (2)", "in no block (2)"]
    (nodes,) = nodes_of(ax)
    white = [tuple(colour) == (1, 1, 1, 1) for colour in nodes.get_facecolors()]  # type: ignore[union-attr]
    assert [graph.names[i] for i in range(9) if white[i]] == ["f", "g"]
    places = layout(graph)
    assert min(places, key=lambda name: places[name][1]) == "g", "below all others"


def test_hairballs_are_bounded_and_say_so() -> None:
    graph = replace(grouped((0,) * 180), groups=None)
    ax = draw_graph(graph)
    assert len(edges_of(ax).get_segments()) == 30_000
    assert "the 30000 heaviest of 32220" in title_of(ax)


def test_it_is_drawn_on_the_axes_given() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert draw_graph(grouped(), left) is left
    assert not right.collections
    assert figure.axes == [left, right]


def test_components_are_stars_in_the_middle_of_their_users() -> None:
    graph = grouped()
    shares = torch.nn.functional.one_hot(torch.tensor(graph.groups), 5).double()[:, [0, 4, 1, 2, 3]]
    ax = draw_graph(replace(graph, components=shares, kind="rows"))
    used = [c for c in range(5) if bool(shares[:, c].any())]
    stars = ax.collections[1].get_offsets()
    assert len(stars) == 5
    places = np.array([layout(replace(graph, kind="rows"))[name] for name in graph.names])
    for c in used:
        assert np.allclose(stars[c], places[shares[:, c].numpy() > 0].mean(0))
    assert len(edges_of(ax).get_segments()) == graph.num_clients
    assert "component, without data (5)" in legend_of(ax)
    assert title_of(ax).endswith("component to user, believed edges")
