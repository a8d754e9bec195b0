"""CooperationGraph: its views, its draws, and what makes no graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from tests.helpers.graphs import planted, table


def test_dense_places_candidates_and_ignores_masked_pairs() -> None:
    expected = torch.zeros(4, 4)
    expected[0, 1], expected[0, 2], expected[1, 2], expected[2, 0], expected[2, 3] = 0.9, 0.2, 0.7, 0.3, 0.8
    assert torch.equal(table().dense(), expected)


def test_masked_pairs_have_no_influence() -> None:
    original = table()
    changed = torch.where(original.peers.mask, original.weights, torch.full_like(original.weights, torch.nan))
    other = CooperationGraph(changed, original.names, original.peers)
    assert torch.equal(other.weights, original.weights)
    assert list(other.to_networkx(0).edges(data=True)) == list(original.to_networkx(0).edges(data=True))
    assert other.score(torch.ones(4, 4)) == original.score(torch.ones(4, 4))


def test_edges_are_those_of_the_dense_graph() -> None:
    for graph in (planted([0, 1, 1]), table()):
        for threshold, there in ((None, graph.dense() > 0.5), (0, graph.dense() != 0), (0.65, graph.dense() > 0.65)):
            receivers, senders, weights = graph.edges(threshold)
            assert torch.equal(torch.stack([receivers, senders], 1), there.nonzero())
            assert torch.equal(weights, graph.dense()[receivers, senders])
    for threshold in (-0.1, float("nan"), "0.5"):
        with pytest.raises(InputError, match="expected a weight of at least 0; 0 is all edges"):
            planted([0, 1]).edges(threshold)


def test_intervals_come_in_pairs_and_in_order() -> None:
    graph = planted([0, 0, 1])
    low, high = graph.weights - 0.01, graph.weights + 0.02
    whole = replace(graph, low=low, high=high)
    assert whole.low is not None
    assert not whole.low[~graph.peers.mask].any(), "nothing is said of pairs that were not looked at"
    for wrong, complaint in (
        ({"low": low}, "give both"),
        ({"low": low, "high": high[:2]}, r"high has shape \(2, 3\), expected \(3, 3\)"),
        ({"low": high, "high": low}, "expected low <= high"),
        ({"low": low, "high": high * torch.nan}, "expected low <= high, no nan"),
    ):
        with pytest.raises(InputError, match=complaint):
            replace(graph, **wrong)  # type: ignore[arg-type]


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


class Operations(TorchDispatchMode):
    """Counts torch's operations, the reading of single numbers among them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return operation(*args, **(kwargs or {}))


def test_nothing_is_done_pair_by_pair() -> None:
    """A thousand clients have a million pairs: the number of operations must not grow with them."""
    found = []
    for clients in (8, 16, 64):
        groups = [i % 4 for i in range(clients)]
        graph = planted(groups, memberships=torch.nn.functional.one_hot(torch.tensor(groups)))
        with Operations() as operations:
            assert graph.to_networkx(0).number_of_edges() == clients * (clients - 1)
            graph.score()
            graph.sample(2)
        found.append(operations.count)
    assert found[0] == found[1] == found[2] > 0


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


def test_a_number_of_draws_is_whole() -> None:
    assert planted([0, 0]).sample(0).shape == (0, 2, 2)
    with pytest.raises(InputError, match="num_samples is -1, expected a whole number of at least 0"):
        planted([0, 0]).sample(-1)


def test_weights_are_cut_off_from_what_computed_them() -> None:
    weights = torch.zeros(2, 2, requires_grad=True)
    assert not CooperationGraph(weights, ("a", "b"), Peers.everybody(2)).weights.requires_grad
