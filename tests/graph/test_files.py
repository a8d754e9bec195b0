"""Graphs as networkx graphs and as files: an edge means the same everywhere, and what is read is what was written."""

from __future__ import annotations

from dataclasses import replace
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
    network = graph.to_networkx(threshold=0)
    assert network["client 2"]["client 0"]["weight"] == graph.weights[0, 2].item()
    assert network.number_of_edges() == 6
    expected = {"group": 0, "block": 0, "accuracy": 0.25, "samples": 4}
    assert network.nodes["client 1"] == expected
    assert {k: type(v) for k, v in network.nodes["client 1"].items()} == {k: type(v) for k, v in expected.items()}


def test_networkx_agrees_with_adjacency_of_dense() -> None:
    for graph in (planted([0, 1, 1, 0, 2]), table()):
        adjacency = torch.from_numpy(nx.to_numpy_array(graph.to_networkx(0), nodelist=graph.names))
        assert torch.equal(adjacency.T, graph.dense().double())


def test_edges_are_those_that_are_believed_and_carry_what_is_known_of_them() -> None:
    graph = planted([0, 0, 1])
    network = graph.to_networkx()
    assert sorted(network.edges) == [("client 0", "client 1"), ("client 1", "client 0")]
    weight = graph.weights[1, 0].item()
    assert network.edges["client 0", "client 1"] == {"weight": weight, "probability": weight, "believed": True}
    assert graph.to_networkx(threshold=0).edges["client 0", "client 2"]["believed"] is False
    spread = replace(graph, low=graph.weights / 2, high=graph.weights.sqrt())
    edge = spread.to_networkx().edges["client 0", "client 1"]
    assert (edge["low"], edge["high"]) == (weight / 2, pytest.approx(weight**0.5))
    assert "probability" not in replace(graph, kind="point").to_networkx().edges["client 0", "client 1"]


@pytest.mark.parametrize("suffix", [".graphml", ".gexf"])
def test_a_node_that_is_renamed_is_called_so_everywhere(tmp_path: Path, suffix: str) -> None:
    names = {"client 0": "Bern", "client 1": "Genève", "client 2": "Chur"}
    renamed = nx.relabel_nodes(planted([0, 0, 1]).to_networkx(), names)
    graph = CooperationGraph.from_networkx(renamed)
    assert graph.names == ("Bern", "Genève", "Chur")
    assert "client" not in str(renamed.nodes(data=True))
    graph.save(tmp_path / f"graph{suffix}")
    assert "client" not in (tmp_path / f"graph{suffix}").read_text()
    assert CooperationGraph.load(tmp_path / f"graph{suffix}").names == graph.names


def test_names_beside_numbered_nodes_are_read_from_files(tmp_path: Path) -> None:
    """As other programs write them, and as this one did."""
    numbered = nx.DiGraph([("n0", "n1")])
    for attribute in ("name", "label"):
        nx.set_node_attributes(numbered, {"n0": "Bern", "n1": "Chur"}, attribute)
        nx.write_graphml(numbered, tmp_path / "graph.graphml")
        assert CooperationGraph.load(tmp_path / "graph.graphml").names == ("Bern", "Chur")
        for node in numbered:
            numbered.nodes[node].pop("name", None)
    nx.set_node_attributes(numbered, "same", "label")
    nx.write_graphml(numbered, tmp_path / "graph.graphml")
    assert CooperationGraph.load(tmp_path / "graph.graphml").names == ("n0", "n1")


def test_files_with_a_threshold_have_those_edges_only(tmp_path: Path) -> None:
    graph = planted([0, 0, 1])
    for threshold, edges in ((None, 2), (0, 6), (0.99, 0)):
        graph.save(tmp_path / "graph.gexf", threshold)
        assert nx.read_gexf(tmp_path / "graph.gexf").number_of_edges() == edges


def test_self_edges_only_when_there() -> None:
    graph = planted([0, 0, 1])
    assert nx.number_of_selfloops(graph.to_networkx(0)) == 0
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
    graph = replace(graph, low=graph.weights / 3, high=graph.weights.sqrt())
    graph.save(tmp_path / f"graph{suffix}")
    loaded = CooperationGraph.load(tmp_path / f"graph{suffix}")
    assert (loaded.dense() - graph.dense()).abs().max() <= 1e-12
    assert (loaded.names, loaded.groups, loaded.kind) == (graph.names, graph.groups, kind)
    assert torch.equal(loaded.blocks(), graph.blocks())
    assert torch.equal(loaded.peers.mask, graph.peers.mask)
    for end in ("low", "high"):
        assert (getattr(loaded, end) - getattr(graph, end)).abs().max() <= 1e-12
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
    assert loaded.low is None


def test_a_file_of_an_earlier_version_gives_the_same_graph(tmp_path: Path) -> None:
    """Nodes had their name a second time, edges a weight alone."""
    graph = planted([0, 1, 1, 0])
    old = graph.to_networkx(0)
    nx.set_node_attributes(old, {name: name for name in old}, "name")
    for *_, edge in old.edges(data=True):
        del edge["probability"], edge["believed"]
    nx.write_graphml(old, tmp_path / "old.graphml")
    loaded = CooperationGraph.load(tmp_path / "old.graphml")
    assert loaded.names == graph.names
    assert torch.equal(loaded.weights, graph.weights)
    assert torch.equal(loaded.believed, graph.believed)


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


@pytest.mark.parametrize("ending", ["graphml", "gexf"])
def test_components_are_nodes_of_their_own(ending: str, tmp_path: Path) -> None:
    shares = torch.tensor([[1.0, 0.0], [0.25, 0.75], [0.0, 0.0]], dtype=torch.float64)
    graph = replace(planted([0, 0, 1]), names=("a", "component 1", "c"), components=shares)
    network = graph.to_networkx(threshold=0)
    seats = [node for node, about in network.nodes(data=True) if about["seat"] == "component"]
    assert seats == ["component' 1", "component' 2"], "no client is called so"
    assert {(u, v): about["weight"] for u, v, about in network.out_edges(seats, data=True)} == {
        (seats[0], "a"): 1.0,
        (seats[0], "component 1"): 0.25,
        (seats[1], "component 1"): 0.75,
    }
    path = tmp_path / f"graph.{ending}"
    graph.save(path)
    found = CooperationGraph.load(path)
    assert found.names == graph.names
    assert found.components is not None
    assert torch.equal(found.components, shares)
    assert torch.equal(found.weights, graph.weights)
