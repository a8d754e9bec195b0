"""Scores of a graph against the truth, by hand and against counts over pairs."""

from __future__ import annotations

import pytest
import torch

from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.graph.scores import block_score, edge_score, group_distance, row_distance, same_group
from tests.helpers.graphs import table
from tests.helpers.priors import rng
from tests.helpers.small import uniform


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


def test_groups_of_any_labels_are_a_true_graph() -> None:
    assert same_group([7, 3, 7]).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_the_area_under_the_curve_is_the_share_of_won_comparisons() -> None:
    """Of every true edge with every other looked-at pair; a draw is half a win."""
    senders = torch.stack([torch.randperm(8, generator=torch.Generator().manual_seed(i))[:5] for i in range(8)])
    peers = Peers(uniform(8, 5, seed=1) < 0.8, senders)
    weights, truth = (10 * uniform(8, 5, seed=2)).round() / 10, (uniform(8, 8, seed=3) < 0.4).double()
    scored: dict[bool, list[float]] = {True: [], False: []}
    for i in range(8):
        for m in range(5):
            j = int(senders[i, m])
            if peers.mask[i, m] and j != i:
                scored[bool(truth[i, j] > 0)].append(float(weights[i, m]))
    wins = [(a > b) + 0.5 * (a == b) for a in scored[True] for b in scored[False]]
    assert edge_score(weights, peers, truth) == pytest.approx(sum(wins) / len(wins))


def test_rows_are_two_apart_at_worst() -> None:
    """Whoever keeps to itself against whoever learns from others only, self edges given."""
    own, others = torch.eye(3), torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])
    assert row_distance(own, own) == 0
    assert row_distance(own, others) == pytest.approx(1.0), "without self edges each keeps half to itself"
    assert row_distance(torch.zeros(3, 3), own) == 0, "who has no sender keeps to itself"
    given = torch.tensor([[1e-12, 1, 0], [0, 0, 1], [1, 0, 0]])
    assert row_distance(own, given) == pytest.approx(2.0)


def test_blocks_under_other_names_are_the_same_blocks() -> None:
    assert block_score(torch.tensor([5, 5, 2, 2]), [0, 0, 1, 1]) == 1
    # One pair together in both, of 6 with 2 and 2 together: (1 - 2/3) / (2 - 2/3).
    assert block_score(torch.tensor([0, 0, 1, 2]), [0, 0, 1, 1]) == pytest.approx((1 - 2 / 6) / ((1 + 2) / 2 - 2 / 6))


@pytest.mark.parametrize("case", ["everybody", "with self", "table", "table with self", "nobody heard"])
def test_scores_against_groups_are_those_against_their_matrix(case: str) -> None:
    """Without a K x K matrix, for all kinds of tables; some clients have no weight at all."""
    size, width = 9, 4
    if "table" in case:
        others = [[j for j in torch.randperm(size, generator=rng(i)).tolist() if j != i] for i in range(size)]
        senders = torch.tensor([([i] if "self" in case else []) + row for i, row in enumerate(others)])[:, :width]
        peers = Peers(torch.rand(size, width, generator=rng(1)) > 0.2, senders)
    else:
        peers = Peers.everybody(size, includes_self="self" in case)
    weights = uniform(*peers.mask.shape) * (case != "nobody heard")
    weights[0] = 0
    groups = [0, 0, 1, 2, 1, 1, 0, 2, 2]
    graph = CooperationGraph(weights, tuple("abcdefghi"), peers, groups=tuple(groups))
    truth = same_group(groups)
    expected = row_distance(peers.dense(weights), truth)
    assert group_distance(weights, peers, torch.tensor(groups)) == pytest.approx(expected, abs=1e-12)
    sparse, dense = graph.score(), graph.score(truth)
    assert sparse.l1 == pytest.approx(dense.l1, abs=1e-12)
    assert sparse.auc == dense.auc
    assert sparse.ari == dense.ari
