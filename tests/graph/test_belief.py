"""Which edges are believed, and what they connect."""

from __future__ import annotations

import networkx as nx
import pytest
import torch

from scool_ppl.graph.belief import believed, pieces, strength
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph


@pytest.mark.parametrize(
    ("kind", "row", "expected"),
    [
        ("edges", [0.0, 0.5, 0.51, 1.0], [0, 0, 1, 1]),
        ("edges", [0.0, 0.1, 0.2, 0.3], [0, 0, 0, 0]),
        ("rows", [0.0, 0.6, 0.31, 0.09], [0, 1, 1, 0]),
        ("rows", [0.25, 0.25, 0.25, 0.25], [1, 1, 1, 1]),
        ("rows", [0.97, 0.01, 0.01, 0.01], [1, 0, 0, 0]),
        ("rows", [0.0, 0.0, 0.0, 0.0], [0, 0, 0, 0]),
        ("point", [0.0, 2.0, 0.03, 0.01], [0, 1, 1, 0]),
        ("point", [0.0, -2.0, 0.0, 0.0], [0, 0, 0, 0]),
    ],
)
def test_what_is_believed(kind: str, row: list[float], expected: list[int]) -> None:
    assert believed(torch.tensor([row, [0.0] * 4]), kind).long().tolist() == [expected, [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("edges", [[0.2, 0.4], [0.0, 0.1]]),
        ("rows", [[0.5, 1.0], [0.0, 1.0]]),
        ("point", [[0.5, 1.0], [0.0, 0.25]]),
    ],
)
def test_strength_is_relative_to_what_weights_compete_with(kind: str, expected: list[list[float]]) -> None:
    found = strength(torch.tensor([[0.2, 0.4], [0.0, 0.1]], dtype=torch.float64), kind)
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64))
    assert not strength(torch.zeros(2, 2), kind).any()


def test_pieces_are_components_inside_the_blocks() -> None:
    random = torch.Generator().manual_seed(4)
    blocks = torch.randint(3, (40,), generator=random)
    receivers, senders = torch.randint(40, (2, 45), generator=random)
    network = nx.Graph()
    network.add_nodes_from(range(40))
    network.add_edges_from((i, j) for i, j in torch.stack([receivers, senders], 1).tolist() if blocks[i] == blocks[j])
    found = pieces(blocks, receivers, senders)
    assert {frozenset((found == g).nonzero().flatten().tolist()) for g in found.unique()} == {
        frozenset(part) for part in nx.connected_components(network)
    }
    assert found[0] == 0
    assert len(found.unique()) == int(found.max()) + 1


def test_who_shares_a_block_and_no_edge_is_no_block_to_the_reader() -> None:
    """A block model puts those whom nobody learns from into one block: an edge there has a low probability."""
    weights = torch.full((5, 5), 0.02)
    weights[:2, :2] = 0.9
    memberships = torch.nn.functional.one_hot(torch.tensor([0, 0, 1, 1, 1]))
    graph = CooperationGraph(weights, tuple("abcde"), Peers.everybody(5), memberships=memberships)
    assert graph.blocks().tolist() == [0, 0, 1, 1, 1]
    assert graph.connected_blocks().tolist() == [0, 0, 1, 2, 3]
