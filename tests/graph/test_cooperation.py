"""CooperationGraph: its views, its files, its draws and its scores, against networkx and by hand."""

from __future__ import annotations

import time
from pathlib import Path

import networkx as nx
import pytest
import torch

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.graph.scores import same_group


def planted(groups: list[int], seed: int = 0, **fields: object) -> CooperationGraph:
    count = len(groups)
    noise = torch.rand(count, count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    weights = 0.1 * noise + 0.85 * same_group(groups)
    names = tuple(f"client {i}" for i in range(count))
    return CooperationGraph(weights, names, Peers.everybody(count), groups=tuple(groups), **fields)  # type: ignore[arg-type]


def table() -> CooperationGraph:
    senders = torch.tensor([[1, 2], [2, 3], [0, 3], [0, 1]])
    mask = torch.tensor([[True, True], [True, False], [True, True], [False, False]])
    weights = torch.tensor([[0.9, 0.2], [0.7, 0.6], [0.3, 0.8], [0.5, 0.5]])
    return CooperationGraph(weights, ("a", "b", "c", "d"), Peers(mask, senders))


def test_dense_places_candidates_and_ignores_masked_pairs() -> None:
    expected = torch.zeros(4, 4)
    expected[0, 1], expected[0, 2], expected[1, 2], expected[2, 0], expected[2, 3] = 0.9, 0.2, 0.7, 0.3, 0.8
    assert torch.equal(table().dense(), expected)


def test_masked_pairs_have_no_influence() -> None:
    original = table()
    changed = torch.where(original.peers.mask, original.weights, torch.full_like(original.weights, torch.nan))
    other = CooperationGraph(changed, original.names, original.peers)
    assert torch.equal(other.weights, original.weights)
    assert list(other.to_networkx().edges(data=True)) == list(original.to_networkx().edges(data=True))
    assert other.score(torch.ones(4, 4)) == original.score(torch.ones(4, 4))


def test_networkx_edge_means_receiver_learns_from_sender() -> None:
    graph = planted([0, 0, 1], accuracy=torch.tensor([0.5, 0.25, 1.0]), samples=torch.tensor([3, 4, 5]))
    network = graph.to_networkx()
    assert network["client 2"]["client 0"]["weight"] == graph.weights[0, 2].item()
    assert network.number_of_edges() == 6
    expected = {"name": "client 1", "group": 0, "block": 0, "accuracy": 0.25, "samples": 4}
    assert network.nodes["client 1"] == expected
    assert {k: type(v) for k, v in network.nodes["client 1"].items()} == {k: type(v) for k, v in expected.items()}


def test_networkx_agrees_with_adjacency_of_dense() -> None:
    for graph in (planted([0, 1, 1, 0, 2]), table()):
        adjacency = torch.from_numpy(nx.to_numpy_array(graph.to_networkx(), nodelist=graph.names))
        assert torch.equal(adjacency.T, graph.dense().double())


def test_self_edges_only_when_there() -> None:
    graph = planted([0, 0, 1])
    assert nx.number_of_selfloops(graph.to_networkx()) == 0
    own = CooperationGraph(torch.eye(3), graph.names, Peers.everybody(3, includes_self=True), kind="rows")
    assert sorted(own.to_networkx().edges) == [(name, name) for name in graph.names]
    assert torch.equal(CooperationGraph.from_networkx(own.to_networkx()).dense(), torch.eye(3).double())


def test_plain_networkx_graphs() -> None:
    directed = CooperationGraph.from_networkx(nx.DiGraph([("u", "v"), ("v", "x")]))
    assert directed.names == ("u", "v", "x")
    assert directed.kind == "point"
    assert torch.equal(directed.dense(), torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0]]).double())
    undirected = nx.Graph()
    undirected.add_edge(7, 9, weight=0.25)
    undirected.add_edge(7, 7)
    assert torch.equal(
        CooperationGraph.from_networkx(undirected).dense(), torch.tensor([[1, 0.25], [0.25, 0]]).double()
    )


@pytest.mark.parametrize(
    ("graph", "complaint"),
    [
        (nx.DiGraph(), "no nodes"),
        (nx.MultiDiGraph([(0, 1)]), "parallel edges"),
        (nx.DiGraph([(0, 1, {"weight": "heavy"})]), "weight that is not a number"),
        (nx.DiGraph([(0, 1, {"weight": float("inf")})]), "not finite"),
        (nx.DiGraph([(0, 1)], kind="edgs"), "did you mean 'edges'"),
        (nx.DiGraph([(0, "0")]), "names of clients repeat"),
    ],
)
def test_unusable_networkx_graphs(graph: nx.Graph, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        CooperationGraph.from_networkx(graph)


@pytest.mark.parametrize("suffix", [".graphml", ".gexf"])
@pytest.mark.parametrize("kind", ["edges", "rows", "point"])
def test_files_keep_everything(tmp_path: Path, suffix: str, kind: str) -> None:
    groups = [2, 0, 2, 1, 0, 1, 3]
    generator = torch.Generator().manual_seed(3)
    memberships = torch.rand(7, 9, generator=generator)
    graph = planted(groups, kind=kind, memberships=memberships, accuracy=torch.rand(7), samples=torch.arange(7) + 30)
    graph.save(tmp_path / f"graph{suffix}")
    loaded = CooperationGraph.load(tmp_path / f"graph{suffix}")
    assert (loaded.dense() - graph.dense()).abs().max() <= 1e-12
    assert (loaded.names, loaded.groups, loaded.kind) == (graph.names, graph.groups, kind)
    assert torch.equal(loaded.blocks(), graph.blocks())
    assert torch.equal(loaded.peers.mask, graph.peers.mask)
    assert loaded.accuracy is not None
    assert graph.accuracy is not None
    assert torch.equal(loaded.accuracy, graph.accuracy.double())
    assert loaded.samples is not None
    assert loaded.samples.tolist() == list(range(30, 37))
    assert loaded.score() == pytest.approx(graph.score(), abs=1e-12)
    assert [path.name for path in tmp_path.iterdir()] == [f"graph{suffix}"]


@pytest.mark.parametrize("suffix", [".graphml", ".gexf"])
def test_files_keep_a_table_of_peers(tmp_path: Path, suffix: str) -> None:
    graph = table()
    graph.save(tmp_path / f"table{suffix}")
    loaded = CooperationGraph.load(tmp_path / f"table{suffix}")
    assert loaded.weights.shape == (4, 2)
    assert torch.equal(loaded.dense(), graph.dense().double())
    assert int(loaded.peers.mask.sum()) == 5


def test_a_lone_client(tmp_path: Path) -> None:
    graph = CooperationGraph(torch.zeros(1, 1), ("only",), Peers.everybody(1))
    graph.save(tmp_path / "one.graphml")
    loaded = CooperationGraph.load(tmp_path / "one.graphml")
    assert loaded.names == ("only",)
    assert loaded.blocks().tolist() == [0]
    assert loaded.score(groups=[0]) == (0.0, None, 1.0)


def test_files_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    graph = planted([0, 1])
    (tmp_path / "file").write_text("no folder")
    for path in (tmp_path / "missing" / "graph.gexf", tmp_path / "file" / "graph.graphml"):
        with pytest.raises(InputError, match=r"cannot write .* expected a folder"):
            graph.save(path)
    for call in (graph.save, CooperationGraph.load):
        with pytest.raises(InputError, match=r"ends in '\.json', expected \.graphml or \.gexf"):
            call(tmp_path / "graph.json")
    (tmp_path / "broken.graphml").write_text("<graphml")
    for name in ("broken.graphml", "absent.gexf"):
        with pytest.raises(InputError, match=f"cannot read '.*{name}'"):
            CooperationGraph.load(tmp_path / name)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "graph.graphml"
    planted([0, 1]).save(path)
    before = path.read_bytes()

    def half(graph: nx.Graph, temporary: Path) -> None:
        Path(temporary).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(nx, "write_graphml", half)
    with pytest.raises(InputError, match="No space left"):
        planted([0, 0]).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


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


def test_draws_follow_the_weights() -> None:
    graph = planted([0, 0, 1, 1])
    draws = graph.sample(20_000, seed=1)
    assert draws.shape == (20_000, 4, 4)
    assert draws.dtype == torch.bool
    assert (draws.double().mean(0) - graph.weights).abs().max() < 0.02
    assert not draws[:, ~graph.peers.mask].any()
    assert torch.equal(draws, graph.sample(20_000, seed=1))
    assert not torch.equal(draws, graph.sample(20_000, seed=2))


def test_draws_of_rows_are_one_hot_and_of_points_are_fixed() -> None:
    peers = table().peers
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.6], [0.9, 0.1], [0.5, 0.5]])
    rows = CooperationGraph(weights, ("a", "b", "c", "d"), peers, kind="rows").sample(20_000)
    assert torch.equal(rows.sum(-1).unique(dim=0), torch.tensor([[1, 1, 1, 0]]))
    assert (rows.double().mean(0) - torch.where(peers.mask, weights, 0.0)).abs().max() < 0.02
    point = CooperationGraph(weights, ("a", "b", "c", "d"), peers, kind="point").sample(2)
    assert torch.equal(point, ((weights > 0.5) & peers.mask).expand(2, 4, 2))


def test_draws_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    planted([0, 0, 1]).sample(3)
    assert torch.equal(before, torch.get_rng_state())


def test_scores_by_hand() -> None:
    weights = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 0.0, 0.0]])
    graph = CooperationGraph(weights, ("a", "b", "c"), Peers.everybody(3), groups=(0, 0, 1))
    # With the self loop, row 0 is right, row 1 is (1/4, 1/2, 1/4) instead of (1/2, 1/2, 0), row 2 is right.
    # True edges weigh 1 and 1/2, the others 0, 1/2, 0, 0: of 8 comparisons 7 are won and one is a draw.
    scores = graph.score()
    assert scores.l1 == pytest.approx((0 + 0.5 + 0) / 3)
    assert scores.auc == pytest.approx(7.5 / 8)
    assert graph.score(truth=same_group([0, 0, 1])).l1 == scores.l1


def test_scores_of_the_truth_and_without_one() -> None:
    groups = [0, 0, 1, 1, 2]
    perfect = CooperationGraph(same_group(groups), tuple("abcde"), Peers.everybody(5), groups=tuple(groups))
    assert perfect.score() == (0.0, 1.0, 1.0)
    unknown = CooperationGraph(same_group(groups), tuple("abcde"), Peers.everybody(5))
    assert unknown.score() == (None, None, None)
    assert unknown.score(groups=groups) == (0.0, 1.0, 1.0)
    assert unknown.score(truth=torch.ones(5, 5)).auc is None
    assert unknown.score(truth=torch.ones(5, 5)).ari is None


def test_a_given_self_edge_counts_as_given() -> None:
    weights = torch.full((2, 2), 0.5)
    graph = CooperationGraph(weights, ("a", "b"), Peers.everybody(2, includes_self=True), kind="point")
    assert graph.score(truth=torch.ones(2, 2)).l1 == 0.0
    assert graph.score(truth=torch.eye(2)).l1 == pytest.approx(1.0)


def test_scores_look_only_at_looked_at_pairs() -> None:
    graph = table()
    truth = torch.zeros(4, 4)
    truth[0, 1] = truth[1, 2] = truth[2, 3] = 1
    assert graph.score(truth=truth).auc == 1.0
    truth[3, 0] = 1
    assert graph.score(truth=truth).auc == 1.0


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"weights": torch.zeros(3, 2)}, "one row per receiver"),
        ({"names": ("a", "b")}, "one row per receiver"),
        ({"names": ("a", "b", "b")}, "names of clients repeat"),
        ({"kind": "row"}, "did you mean 'rows'"),
        ({"weights": torch.full((3, 3), 1.5)}, "probabilities"),
        ({"weights": torch.full((3, 3), torch.nan)}, "not finite"),
        ({"groups": (0, 1)}, "groups has 2 entries, expected 3"),
    ],
)
def test_bad_graphs_are_refused(fields: dict[str, object], complaint: str) -> None:
    good = {"weights": torch.zeros(3, 3), "names": ("a", "b", "c"), "peers": Peers.everybody(3)}
    with pytest.raises(InputError, match=complaint):
        CooperationGraph(**(good | fields))  # type: ignore[arg-type]


def test_bad_truth_is_refused() -> None:
    with pytest.raises(InputError, match=r"truth has shape \(2, 2\), expected \(3, 3\)"):
        planted([0, 0, 1]).score(truth=torch.eye(2))
    with pytest.raises(InputError, match="groups has 2 entries"):
        planted([0, 0, 1]).score(groups=[0, 1])


def test_a_thousand_clients_are_quick() -> None:
    groups = [i % 8 for i in range(1000)]
    memberships = torch.nn.functional.one_hot(torch.tensor(groups))
    graph = planted(groups, memberships=memberships)
    start = time.process_time()
    network = graph.to_networkx()
    assert network.number_of_edges() == 999_000
    assert time.process_time() - start < 20
