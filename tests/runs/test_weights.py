"""weights.npz: the graphs of a run come back as they were, those of many clients without the file of their edges."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from scool_ppl.graph.candidates import Entries, Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.runs import weights
from scool_ppl.runs.folder import Run
from tests.helpers.refusals import refuses
from tests.helpers.runs import finished, graph, row


@pytest.mark.parametrize(
    ("rounds", "kept"), [(1, [1]), (3, [1, 2, 3]), (5, [1, 2, 5]), (60, [1, 2, 5, 10, 20, 50, 60])], ids=str
)
def test_graphs_of_round_rounds_and_the_last_are_kept(tmp_path: Path, rounds: int, kept: list[int]) -> None:
    finished(tmp_path / "run", rounds)
    with np.load(tmp_path / "run" / "weights.npz", allow_pickle=False) as arrays:
        assert set(arrays) == {"rounds", "weights", "names"}
        assert arrays["rounds"].tolist() == kept
        assert np.array_equal(arrays["weights"], np.stack([graph(round).weights.numpy() for round in kept]))
        assert arrays["names"].tolist() == ["a", "b", "c"]


def test_tables_of_many_clients_are_kept_as_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds with tables of several widths; weights of all edges come back though graph.graphml has the believed alone."""
    for place, number in {"graph.candidates.MANY": 5, "runs.weights.FEW": 5, "plots.matrix.MANY": 5}.items():
        monkeypatch.setattr(f"scool_ppl.{place}", number)
    run, graphs = Run.create(tmp_path / "run"), {}
    for round, width in ((1, 2), (2, 3)):
        senders = torch.stack([(torch.arange(6) + step) % 6 for step in range(1, width + 1)], 1)
        mask = torch.ones(6, width, dtype=torch.bool)
        mask[0, -1] = False
        weights = torch.linspace(0.1, 0.9, 6 * width).view(6, width)
        names = tuple(f"client {number}" for number in range(6))
        graphs[round] = CooperationGraph(weights, names, Peers(mask, senders), groups=(0, 0, 0, 1, 1, 1))
        run.record(row(round), graphs[round])
    run.finish({})
    with np.load(run.path / "weights.npz") as arrays:
        assert arrays["weights"].shape == arrays["senders"].shape == (2, 6, 3)
        assert (arrays["senders"] == -1).sum() == 6 + 2
    kept, _ = Run.open(run.path).weights()
    for round, known in graphs.items():
        peers, weights = Peers.read(kept[round])
        assert torch.equal(peers.dense(weights), known.dense())
    torch.testing.assert_close(Run.open(run.path).graph.dense(), graphs[2].dense())
    assert (run.path / "graph.graphml").read_text().count("<edge ") == int((graphs[2].weights > 0.5).sum())


def _many(table: bool) -> CooperationGraph:
    """Six clients of whom all that there is is known."""
    names = tuple(f"client {number}" for number in range(6))
    if table:
        senders = torch.stack([(torch.arange(6) + step) % 6 for step in (1, 2)], 1)
        peers = Peers(torch.ones(6, 2, dtype=torch.bool), senders)
    else:
        peers = Peers.everybody(6)
    shape = peers.mask.shape
    strength = torch.linspace(0.1, 0.9, shape.numel(), dtype=torch.float64).view(shape)
    return CooperationGraph(
        weights=strength,
        names=names,
        peers=peers,
        kind="rows",
        memberships=torch.eye(3).double()[[0, 0, 1, 2, 2, 1]],
        groups=(3, 3, 1, 1, 4, 4),
        accuracy=torch.linspace(0, 1, 6).double(),
        samples=torch.arange(6) + 10,
        positions=torch.arange(12.0).double().view(6, 2),
        low=None if table else (strength / 2).float(),
        high=None if table else (strength / 2 + 0.5).float(),
        components=torch.linspace(0, 1, 12).double().view(6, 2),
    )


@pytest.mark.parametrize("table", [False, True], ids=["matrix", "table"])
def test_a_graph_of_many_clients_is_read_without_the_file_of_its_edges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: bool
) -> None:
    """networkx needs seconds and gigabytes for what a few arrays say; all fields come back."""
    for place, number in {"graph.candidates.MANY": 5, "runs.weights.FEW": 5}.items():
        monkeypatch.setattr(f"scool_ppl.{place}", number)
    graph = _many(table)
    weights.save(tmp_path, {1: graph.peers.kept(graph.weights)}, graph)
    saved = CooperationGraph.load(tmp_path / weights.GRAPH)
    (tmp_path / weights.GRAPH).unlink()
    found = weights.last(tmp_path)
    expected = replace(graph, memberships=saved.memberships, blocks_are_final=True)
    for field in fields(CooperationGraph):
        ours, theirs = getattr(expected, field.name), getattr(found, field.name)
        if isinstance(ours, Tensor):
            torch.testing.assert_close(theirs, ours, rtol=0, atol=0)
        elif field.name == "peers":
            assert torch.equal(theirs.mask, ours.mask)
            assert torch.equal(theirs.columns(), ours.columns())
        else:
            assert theirs == ours, field.name


def test_a_folder_of_an_earlier_version_is_read_with_the_file_of_its_edges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scool_ppl.runs.weights.FEW", 5)
    graph = _many(table=False)
    weights.save(tmp_path, {1: graph.peers.kept(graph.weights)}, graph)
    with np.load(tmp_path / weights.FILE) as arrays:
        earlier = {name: arrays[name] for name in ("rounds", "names", "weights", "low", "high")}
    np.savez(tmp_path / weights.FILE, **earlier)
    found = weights.last(tmp_path)
    assert torch.equal(found.weights, graph.weights)
    assert (found.groups, found.kind, found.names) == (graph.groups, graph.kind, graph.names)
    assert found.blocks().tolist() == graph.blocks().tolist()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / weights.FILE).write_bytes(b"PK\x03\x04 cut short")
    for read in (weights.load, weights.intervals, weights.last):
        expected = f"cannot read {tmp_path / weights.FILE}: it is no .npz file, or not all of one; repeat the run"
        refuses(partial(read, tmp_path), expected)


def test_a_matrix_among_tables_becomes_one() -> None:
    """As of more than 4,000 clients whose candidates have become few."""
    matrix = torch.tensor([[0.0, 0.5, 0.25], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    table = Entries(torch.tensor([[0.5], [0.25], [0.75]]), torch.tensor([[1], [0], [0]]))
    found = weights._stacked([matrix, table])
    assert found["senders"].tolist() == [[[1, 2], [-1, -1], [0, -1]], [[1, -1], [0, -1], [0, -1]]]
    assert found["weights"].tolist() == [[[0.5, 0.25], [0, 0], [1, 0]], [[0.5, 0], [0.25, 0], [0.75, 0]]]
