"""Blocks: communities of a graph, memberships, and blocks that are one because they cooperate."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import torch

from scool_ppl.graph.blocks import by_appearance, communities, merged
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.graph.scores import same_group
from tests.helpers.graphs import planted
from tests.helpers.small import uniform


def test_labels_of_any_kind_are_numbered_as_they_appear() -> None:
    assert by_appearance(["b", 3, "b", None, 3]).tolist() == [0, 1, 0, 2, 1]
    assert by_appearance([]).shape == (0,)


def test_blocks_from_memberships_in_order_of_appearance() -> None:
    memberships = torch.tensor([[0.1, 0.2, 0.7], [0.8, 0.1, 0.1], [0.0, 0.4, 0.6], [0.3, 0.4, 0.3]])
    assert planted([0, 1, 0, 2], memberships=memberships).blocks().tolist() == [0, 1, 0, 2]


def blocks_of(weights: torch.Tensor, peers: Peers, memberships: list[int], kind: str = "edges") -> list[int]:
    names = tuple(f"client {i}" for i in range(len(memberships)))
    one_hot = torch.nn.functional.one_hot(torch.tensor(memberships))
    graph = CooperationGraph(weights, names, peers, kind=kind, memberships=one_hot)  # type: ignore[arg-type]
    return graph.blocks().tolist()


def test_a_group_split_into_blocks_is_one_block_and_two_groups_stay_two() -> None:
    groups, split = [0, 1, 0, 1, 0, 1, 0, 1], [2, 4, 2, 0, 5, 4, 5, 0]
    weights, everybody = 0.05 + 0.85 * same_group(groups), Peers.everybody(8)
    assert blocks_of(weights, everybody, split) == groups
    assert blocks_of(weights, everybody, groups) == groups
    assert blocks_of(weights, everybody, split, kind="point") == groups
    # Rows that sum to one are no densities, however heavy they are: both members of block 2 choose the same client.
    assert blocks_of(weights, everybody, split, kind="rows") == [0, 1, 0, 2, 3, 1, 3, 2]


def test_blocks_merge_along_chains_and_only_if_both_learn_from_each_other() -> None:
    everybody, split = Peers.everybody(6), [0, 0, 1, 1, 2, 2]
    weights = torch.zeros(6, 6)
    weights[:2, 2:4] = weights[2:4, :2] = weights[2:4, 4:] = 0.6
    assert blocks_of(weights, everybody, split) == [0, 0, 0, 0, 1, 1]
    weights[4:, 2:4] = 0.5
    assert blocks_of(weights, everybody, split) == [0, 0, 0, 0, 1, 1]
    weights[4, 2] = 0.6
    assert blocks_of(weights, everybody, split) == [0] * 6


def test_blocks_of_a_table_merge_by_its_pairs() -> None:
    # Clients 0 to 3 look at one or two of each other, 4 and 5 at each other only; masked candidates weigh nothing.
    senders = torch.tensor([[2, 4], [3, 0], [1, 5], [0, 1], [5, 0], [4, 0]])
    mask = torch.tensor([[True, True], [True, True], [True, True], [True, False], [True, False], [True, False]])
    weights = torch.tensor([[0.9, 0.1], [0.7, 0.9], [0.8, 0.2], [0.6, 0.0], [0.9, 0.9], [0.9, 0.9]])
    assert blocks_of(weights, Peers(mask, senders), [0, 0, 1, 1, 2, 2]) == [0, 0, 0, 0, 1, 1]
    # Without client 2 and 3 looking at 0 and 1 nothing is known of that direction.
    mask[2, 0] = mask[3, 0] = False
    assert blocks_of(weights, Peers(mask, senders), [0, 0, 1, 1, 2, 2]) == [0, 0, 1, 1, 2, 2]


def test_merged_blocks_of_a_table_are_those_of_its_dense_graph() -> None:
    random = torch.Generator().manual_seed(5)
    senders = torch.rand(30, 30, generator=random).fill_diagonal_(-1).topk(12, dim=1).indices
    memberships = [i % 10 for i in range(30)]
    table = Peers(torch.rand(30, 12, generator=random) < 0.8, senders)
    looked = table.dense(table.mask.double()) > 0
    weights = 0.6 * same_group([i % 3 for i in memberships]) + 0.4 * torch.rand(30, 30, generator=random)
    blocks = blocks_of(table.take(weights), table, memberships)
    assert blocks == blocks_of(weights, Peers(looked), memberships)
    assert 1 < len(set(blocks)) < 10


def test_merging_is_the_printed_formula_summed_pair_by_pair() -> None:
    """d_gh = sum_ij w_ij H_ig H_jh / sum_ij m_ij H_ig H_jh; blocks are joined where both directions are above 1/2."""
    for seed in range(5):
        weights, labels = uniform(12, 12, seed=seed), [i % 5 for i in range(12)]
        peers = Peers((uniform(12, 12, seed=seed + 50) < 0.7).fill_diagonal_(False))
        above = nx.Graph()
        above.add_nodes_from(range(5))
        density = torch.zeros(5, 5)
        for g in range(5):
            for h in range(5):
                pairs = [(i, j) for i in range(12) for j in range(12) if labels[i] == g and labels[j] == h]
                looked = [(i, j) for i, j in pairs if peers.mask[i, j]]
                density[g, h] = sum(float(weights[i, j]) for i, j in looked) / max(len(looked), 1)
        above.add_edges_from((g, h) for g in range(5) for h in range(5) if min(density[g, h], density[h, g]) > 0.5)
        expected = [min(nx.node_connected_component(above, label)) for label in labels]
        found = merged(torch.tensor(labels), weights, peers)
        assert found.tolist() == by_appearance(expected).tolist()


def test_blocks_survive_files_and_are_not_merged_twice(tmp_path: Path) -> None:
    """Blocks 0 and 1 merge; then the pair and block 2 would, if what was read were merged again."""
    weights = torch.zeros(3, 3)
    weights[0, 1] = weights[1, 0] = 0.9
    weights[0, 2], weights[2, 1] = 1.0, 1.0
    weights[1, 2] = 0.4
    weights[2, 0] = 0.4
    graph = CooperationGraph(weights, ("a", "b", "c"), Peers.everybody(3), memberships=torch.eye(3))
    graph.save(tmp_path / "graph.graphml")
    assert graph.blocks().tolist() == [0, 0, 1]
    assert CooperationGraph.load(tmp_path / "graph.graphml").blocks().tolist() == [0, 0, 1]


def test_blocks_from_communities_leave_the_isolated_alone() -> None:
    groups = [0, 1, 0, 1, 0, 1, 2, 3]
    assert planted(groups).blocks().tolist() == groups
    empty = CooperationGraph(torch.zeros(3, 3), ("a", "b", "c"), Peers.everybody(3))
    assert empty.blocks().tolist() == [0, 1, 2]


def test_communities_are_found_in_a_table_as_in_its_dense_graph() -> None:
    groups = [i % 3 for i in range(12)]
    senders = torch.stack([torch.tensor([j for j in range(12) if j != i]) for i in range(12)])
    peers = Peers(torch.ones(12, 11, dtype=torch.bool), senders)
    weights = 0.9 * same_group(groups)
    assert communities(peers.take(weights), peers, "edges").tolist() == groups
    assert communities(weights, Peers.everybody(12), "edges").tolist() == groups


def test_an_edge_is_weak_in_itself_or_beside_the_heaviest() -> None:
    """Probabilities of edges below 0.1 connect nobody; rows that sum to one get light with many clients, and do."""
    weights = torch.zeros(4, 4)
    weights[0, 1] = weights[2, 3] = 0.05
    everybody = Peers.everybody(4)
    assert communities(weights, everybody, "edges").tolist() == [0, 1, 2, 3]
    assert communities(weights, everybody, "rows").tolist() == [0, 0, 1, 1]
    weights[0, 2] = 1e-4
    assert communities(weights, everybody, "rows").tolist() == [0, 0, 1, 1]
