"""Graphs as networkx graphs and as files: an edge means the same everywhere, and what is read is what was written."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest
import torch

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from tests.helpers.graphs import planted, table


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
    undirected.graph["peers"] = "edges"
    table = CooperationGraph.from_networkx(undirected).peers
    assert table.mask.sum(1).tolist() == [2, 1], "an undirected edge goes both ways, one to itself is one edge"


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


def test_places_labels_and_groups_of_others_are_understood() -> None:
    graph = nx.DiGraph()
    for node, group, block in (("a", "north", 7), ("b", "south", 7), ("c", "north", 2)):
        graph.add_node(node, group=group, block=block, x=1.0, y=-len(graph))
    graph.add_edge("a", "b")
    found = CooperationGraph.from_networkx(graph)
    assert found.groups == (0, 1, 0), "names of groups become numbers in order of appearance"
    assert found.blocks().tolist() == [0, 0, 1]
    assert found.positions is not None
    assert found.positions.tolist() == [[1, 0], [1, -1], [1, -2]]
    del graph.nodes["b"]["group"]
    assert CooperationGraph.from_networkx(graph).groups is None, "what is not known of all is known of none"


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
