"""The picture of a graph: nodes, edges, labels and legend are those of the graph, and nothing is cut off or covered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.plots.graph import draw_graph, layout
from scool_ppl.plots.style import PALETTE
from tests.helpers.pictures import GROUPS, apart, arranged, grouped, on_page


def edges_of(ax: Any) -> LineCollection:
    return next(collection for collection in ax.collections if isinstance(collection, LineCollection))


def test_edges_drawn_are_those_above_the_threshold() -> None:
    graph = grouped()
    ax = draw_graph(graph)
    assert len(edges_of(ax).get_segments()) == int((graph.weights >= 0.1).sum()) == 80
    assert len(edges_of(draw_graph(graph, threshold=0.0)).get_segments()) == 380
    widths = np.asarray(edges_of(ax).get_linewidth())
    order = np.sort(graph.weights[graph.weights >= 0.1].numpy())
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
    graph = grouped(memberships=torch.nn.functional.one_hot(torch.arange(20) // 10))
    positions = layout(graph)
    ax = draw_graph(graph, positions=positions)
    nodes = [c for c in ax.collections if isinstance(c, PathCollection)]
    assert len(nodes) == 4
    assert len({c.get_paths()[0].vertices.tobytes() for c in nodes}) == 4
    for group, collection in enumerate(nodes):
        members = [i for i in range(20) if GROUPS[i] == group]
        assert np.allclose(collection.get_offsets(), [positions[f"client-{i}"] for i in members])
        assert np.allclose(collection.get_facecolors(), [to_rgba(PALETTE[i // 10]) for i in members])
    assert sorted(text.get_text() for text in ax.texts) == sorted(map(str, range(20)))


def test_blocks_are_apart() -> None:
    for groups in (GROUPS, (0,) * 30 + (1,) * 3 + (2, 3, 4)):
        graph = grouped(groups, memberships=torch.nn.functional.one_hot(torch.tensor(groups)))
        places = np.array(list(layout(graph).values()))
        assert np.abs(places).max() == pytest.approx(1)
        members = [places[np.array(groups) == group] for group in sorted(set(groups))]
        centres = np.array([block.mean(axis=0) for block in members])
        radii = np.array([np.linalg.norm(block - block.mean(axis=0), axis=1).max() for block in members])
        gaps = np.linalg.norm(centres[:, None] - centres, axis=2) - radii - radii[:, None]
        assert gaps[~np.eye(len(members), dtype=bool)].min() > 0.1


def test_layout_repeats_with_its_seed() -> None:
    before = layout(grouped(seed=0))
    assert layout(grouped(seed=0)) == before
    assert layout(grouped(seed=0), seed=1) != before


def test_graph_without_edges_says_so() -> None:
    graph = CooperationGraph(torch.zeros(3, 3), ("a", "b", "c"), Peers.everybody(3))
    ax = draw_graph(graph)
    assert len(edges_of(ax).get_segments()) == 0
    legend = ax.get_legend()
    assert legend is not None
    assert legend.get_title().get_text() == "3 blocks, 3 clients; no edges"


def test_positions_must_be_complete() -> None:
    with pytest.raises(InputError, match="positions lack client 'client-1'"):
        draw_graph(grouped(), positions={"client-0": (0, 0)})


def nodes_of(ax: Any) -> list[PathCollection]:
    return [collection for collection in ax.collections if isinstance(collection, PathCollection)]


def extents(ax: Any) -> list[Bbox]:
    """The box of every node, in pixels."""
    boxes = []
    for collection in nodes_of(ax):
        half = np.sqrt(collection.get_sizes()[0]) / 2 * ax.figure.dpi / 72
        for x, y in ax.transData.transform(collection.get_offsets()):
            boxes.append(Bbox([[x - half, y - half], [x + half, y + half]]))
    return boxes


@pytest.mark.parametrize("count", [1, 2, 20, 100])
def test_every_client_is_seen_inside_the_picture_and_beside_the_legend(count: int) -> None:
    groups = tuple(i % 4 for i in range(count))
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
    if count <= 20:
        assert apart(boxes)
    assert len(ax.texts) in (0, count), "names are written for all or for none"
    assert [text.get_text() for text in legend.get_texts()] == [
        *(f"block {group} ({groups.count(group)})" for group in sorted(set(groups))),
        *(f"true group {group}" for group in sorted(set(groups))),
    ]


def test_names_stay_inside_their_nodes() -> None:
    ax = draw_graph(grouped())
    arranged(ax.figure)
    nodes = {(round(box.x0 + box.x1), round(box.y0 + box.y1)): box for box in extents(ax)}
    for text in ax.texts:
        x, y = ax.transData.transform(text.xy)  # type: ignore[attr-defined]
        node, own = nodes[round(2 * x), round(2 * y)], text.get_window_extent()
        assert node.x0 <= own.x0 <= own.x1 <= node.x1


def test_it_is_drawn_on_the_axes_given() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert draw_graph(grouped(), left) is left
    assert not right.collections
    assert figure.axes == [left, right]


def test_clients_of_a_latent_space_are_drawn_at_their_positions() -> None:
    positions = torch.tensor([[0.0, 0.0], [4.0, 0.0], [4.0, 2.0]])
    graph = CooperationGraph(torch.zeros(3, 3), ("a", "b", "c"), Peers.everybody(3), positions=positions)
    found = np.array(list(layout(graph).values()))
    assert np.allclose(found, [[-1, -0.5], [1, -0.5], [1, 0.5]]), "moved and scaled, never turned or stretched"
