"""The graph as a page holds it: orientation, which edges are kept, means between blocks, matrices."""

from __future__ import annotations

import base64

import numpy as np
import pytest
import torch

from scool_ppl.graph.belief import believed as graph_believes
from scool_ppl.graph.candidates import Peers
from scool_ppl.report.links import MOST_CELLS, Links, between_blocks, links_of, matrices, strongest
from tests.helpers.reports import cooperation


def made(num_clients: int = 8) -> Links:
    graph = cooperation(num_clients)
    assert graph.low is not None
    assert graph.high is not None
    return links_of(graph.kind, graph.weights.numpy(), (graph.low.numpy(), graph.high.numpy()))


def test_an_edge_goes_from_who_teaches_to_who_learns() -> None:
    links = links_of("edges", np.array([[0.5, 0.9], [0.2, 0.5]]))
    found = strongest(links)
    assert found == {"from": [1, 0], "to": [0, 1], "total": 2, "w": [0.9, 0.2]}


def test_of_too_many_edges_everybodys_strongest_are_kept_with_their_intervals() -> None:
    found = strongest(made(), most=8)
    assert found["total"] == 8 * 7
    assert sorted(found["to"]) == list(range(8))
    assert all(source % 4 == (1 if to % 4 == 0 else 0) for source, to in zip(found["from"], found["to"], strict=True))
    assert all(low < w < high for low, w, high in zip(found["low"], found["w"], found["high"], strict=True))


@pytest.mark.parametrize(
    ("kind", "believed"),
    [
        ("edges", [[0, 1, 0], [0, 0, 0], [0, 0, 0]]),  # above one half
        ("rows", [[0, 1, 0], [1, 0, 1], [0, 0, 0]]),  # above half the row's heaviest, the third's is its own
        ("point", [[0, 1, 1], [1, 0, 1], [1, 0, 0]]),  # above a hundredth of the heaviest
    ],
)
def test_what_is_believed(kind: str, believed: list[list[int]]) -> None:
    weights = np.array([[0.1, 0.7, 0.2], [0.3, 0.3, 0.4], [0.1, 0.005, 0.895]])
    assert links_of(kind, weights).believed.astype(int).tolist() == believed
    by_the_library = graph_believes(torch.tensor(weights), kind).fill_diagonal_(False)
    assert by_the_library.long().tolist() == believed


def test_strength_is_told_where_it_is_not_the_weight() -> None:
    weights = np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]])
    found = strongest(links_of("rows", weights))
    assert (found["w"], found["strength"]) == ([0.25, 0.1, 0.25, 0.1], [0.5, 0.125, 0.5, 0.125])
    assert "strength" not in strongest(made())


def test_one_graph_is_told_from_probabilities() -> None:
    assert not made().is_best
    assert links_of("edges", np.array([[0.0, 1.0], [0.0, 0.0]])).is_best


def test_means_between_blocks_are_those_of_loops() -> None:
    weights = np.random.default_rng(0).random((7, 7))
    np.fill_diagonal(weights, 0)
    blocks = np.array([0, 1, 0, 2, 1, 0, 0])
    found = between_blocks(links_of("edges", weights), weights, blocks)
    assert np.array_equal(between_blocks(links_of("edges", weights), weights, blocks, 2), found[:2, :2])
    for one in range(3):
        for other in range(3):
            pairs = [(i, j) for i in range(7) for j in range(7) if i != j and (blocks[i], blocks[j]) == (one, other)]
            assert found[one, other] == pytest.approx(np.mean([weights[p] for p in pairs]) if pairs else 0)


def test_matrices_are_in_order_and_averaged_where_they_are_large() -> None:
    frame = np.array([[0.0, 0.5], [1.0, 0.25]])
    small = matrices({"one": (Peers.everybody(2, True), frame)}, np.array([1, 0]), 1.0)
    assert list(base64.b64decode(small["frames"]["one"])) == [64, 255, 128, 0]
    count = MOST_CELLS + 100
    rows = np.tile(np.linspace(0, 1, count), (count, 1))
    large = matrices({"one": (Peers.everybody(count, True), rows)}, np.arange(count), 1.0)
    cells = np.frombuffer(base64.b64decode(large["frames"]["one"]), np.uint8).reshape(MOST_CELLS, MOST_CELLS)
    assert large["size"] == len(large["first"]) == MOST_CELLS
    assert large["first"][0] == 0
    assert (np.diff(cells.astype(int), axis=1) >= 0).all()
    assert (cells == cells[0]).all()
    assert cells.mean() == pytest.approx(127.5, abs=1)
