"""The table of candidates against loops over receivers and columns."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Entries, Peers
from tests.helpers.small import normal

SENDERS = torch.tensor([[1, 3], [0, 2], [3, 0], [2, 1]])


MASK = torch.tensor([[True, True], [True, False], [False, False], [True, True]])


def table() -> Peers:
    """Four clients with two candidates each; client 1 looks at one of them, client 2 at none."""
    return Peers(MASK, SENDERS)


def everybody_but_one() -> Peers:
    """Four clients, everybody looks at everybody but 2 at nobody and 1 not at 3."""
    mask = ~torch.eye(4, dtype=torch.bool)
    mask[2] = mask[1, 3] = False
    return Peers(mask)


def candidates(peers: Peers) -> list[tuple[int, int, int]]:
    """(receiver, column, sender) of every looked-at pair."""
    pairs = []
    for i in range(peers.mask.shape[0]):
        for m in range(peers.mask.shape[1]):
            if peers.mask[i, m]:
                pairs.append((i, m, m if peers.senders is None else int(peers.senders[i, m])))
    return pairs


both = pytest.mark.parametrize("peers", [table(), everybody_but_one()], ids=["table", "everybody"])


@both
def test_combine_is_the_double_loop(peers: Peers) -> None:
    weights, x = normal(*peers.mask.shape), normal(4, 3, 2, seed=1)
    expected = torch.zeros(4, 3, 2, dtype=torch.float64)
    for i, m, j in candidates(peers):
        expected[i] += weights[i, m] * x[j]
    torch.testing.assert_close(peers.combine(weights, x), expected, rtol=0, atol=1e-12)
    # The bias of a scalar layer, one entry a client, and the networks' own precision are kept.
    combined = peers.combine(weights, x[:, 0, 0].float())
    assert combined.dtype == torch.float32
    torch.testing.assert_close(combined, expected[:, 0, 0].float())


@both
def test_weights_of_masked_pairs_are_not_used(peers: Peers) -> None:
    weights, x = normal(*peers.mask.shape), normal(4, 3, seed=1)
    for junk in (torch.nan, torch.inf, 1e9):
        spoiled = weights.masked_fill(~peers.mask, junk)
        assert torch.equal(peers.combine(spoiled, x), peers.combine(weights, x))
        assert torch.equal(peers.dense(spoiled), peers.dense(weights))


@both
@pytest.mark.parametrize("junk", [torch.nan, torch.inf])
def test_what_broke_reaches_only_those_who_give_it_weight(peers: Peers, junk: float) -> None:
    weights, x = normal(*peers.mask.shape), normal(4, 3, 2, seed=1)
    weights[3, 1] = 0
    broken = x.clone()
    broken[1, 2, 0] = junk
    reached = [i for i, m, j in candidates(peers) if j == 1 and weights[i, m] != 0]
    kept = [i for i in range(4) if i not in reached]
    assert reached
    assert kept
    combined = peers.combine(weights, broken)
    assert not bool(combined[reached].isfinite().any())
    torch.testing.assert_close(combined[kept], peers.combine(weights, x)[kept], rtol=0, atol=1e-14)


@both
def test_gather_shows_each_receiver_its_senders(peers: Peers) -> None:
    x = normal(4, 3)
    seen = peers.gather(x).expand(4, peers.mask.shape[1], 3)
    for i, m, j in candidates(peers):
        assert torch.equal(seen[i, m], x[j])


def test_gather_for_everybody_takes_no_memory() -> None:
    x = normal(4, 3)
    seen = Peers.everybody(4).gather(x)
    assert seen.shape == (1, 4, 3)
    assert seen.data_ptr() == x.data_ptr()


@both
def test_take_and_dense_are_inverse_on_looked_at_pairs(peers: Peers) -> None:
    matrix = normal(4, 4)
    taken = peers.take(matrix)
    assert taken.shape == peers.mask.shape
    expected = torch.full((4, 4), -7.0, dtype=torch.float64)
    for i, m, j in candidates(peers):
        assert taken[i, m] == matrix[i, j]
        expected[i, j] = matrix[i, j]
    assert torch.equal(peers.dense(taken, fill=-7.0), expected)
    assert peers.dense(taken).dtype == torch.float64


@pytest.mark.parametrize("others", [table(), everybody_but_one(), Peers(MASK.flip(0), SENDERS.flip(1))])
@both
def test_lookup_is_the_way_by_the_matrix(peers: Peers, others: Peers) -> None:
    values = normal(*peers.mask.shape)
    expected = others.take(peers.dense(values, -7.0))
    assert torch.equal(peers.lookup(values, others, -7.0), expected)
    twice = Peers(torch.tensor([[False, True]]).expand(4, 2), SENDERS[:, :1].expand(4, 2))
    assert torch.equal(twice.lookup(normal(4, 2), others), others.take(twice.dense(normal(4, 2))))


def test_a_masked_column_does_not_hide_a_pair_of_the_same_sender() -> None:
    peers = Peers(torch.tensor([[True, False], [True, True]]), torch.tensor([[1, 1], [0, 1]]))
    assert torch.equal(peers.dense(torch.tensor([[0.5, 0.9], [0.2, 0.3]])), torch.tensor([[0.0, 0.5], [0.2, 0.3]]))


@pytest.mark.parametrize("num_clients", [1, 2, 5])
def test_everybody_looks_at_all_others(num_clients: int) -> None:
    peers = Peers.everybody(num_clients)
    assert peers.num_clients == num_clients
    assert [(i, j) for i, _, j in candidates(peers)] == [
        (i, j) for i in range(num_clients) for j in range(num_clients) if i != j
    ]
    assert bool(Peers.everybody(num_clients, includes_self=True).mask.all())


@both
def test_pairs_are_listed_by_row(peers: Peers) -> None:
    assert list(zip(*(part.tolist() for part in peers.pairs()), strict=True)) == candidates(peers)


@both
@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_distances_and_inner_products_are_those_of_the_pairs(peers: Peers, norm: float) -> None:
    own, theirs = normal(4, 7), normal(4, 7, seed=1)
    distance, inner = peers.distance(own.float(), theirs.float(), norm), peers.inner(own, theirs)
    assert distance.shape == inner.shape == peers.mask.shape
    assert distance.dtype == torch.float64, "differences of near networks lose their digits in single precision"
    for i, m, j in candidates(peers):
        expected = (theirs[j] - own[i]).abs().pow(norm).sum().pow(1 / norm)
        assert float(distance[i, m]) == pytest.approx(float(expected), rel=1e-6)
        assert float(inner[i, m]) == pytest.approx(float((own[i] * theirs[j]).sum()))


@both
def test_the_absent_neither_learn_nor_teach(peers: Peers) -> None:
    present = torch.tensor([True, False, True, True])
    left = peers.among(present)
    assert candidates(left) == [(i, m, j) for i, m, j in candidates(peers) if present[i] and present[j]]
    assert left.columns() is peers.columns() or torch.equal(left.columns(), peers.columns())
    assert peers.among(torch.ones(4, dtype=torch.bool)) is peers


def test_own_pairs_are_those_of_a_client_with_itself() -> None:
    table = Peers(torch.tensor([[True, True], [True, False]]), torch.tensor([[1, 0], [0, 1]]))
    assert table.own().tolist() == [[False, True], [False, False]], "a masked pair is no pair"
    assert torch.equal(Peers.everybody(3, includes_self=True).own(), torch.eye(3).bool())
    assert not Peers.everybody(3).own().any()


def test_fresh_pairs_are_candidates_that_are_looked_at() -> None:
    everybody = Peers.everybody(3)
    assert everybody.fresh is everybody
    looked = torch.tensor([[True, True, False], [False] * 3, [False, True, True]])
    some = everybody._replace(looked=looked)
    assert torch.equal(some.fresh.mask, looked & ~torch.eye(3).bool())
    assert some.fresh.looked is None
    kept = table()._replace(looked=torch.tensor([[False, True]] * 4))
    assert candidates(kept.fresh) == [(i, m, j) for i, m, j in candidates(table()) if m == 1]


def test_only_a_symmetric_mask_of_everybody_is_mutual() -> None:
    assert Peers.everybody(3).is_mutual
    assert not everybody_but_one().is_mutual
    symmetric = Peers(torch.ones(2, 2, dtype=torch.bool), torch.tensor([[0, 1], [0, 1]]))
    assert symmetric.is_table
    assert not symmetric.is_mutual, "columns of a table are not clients"
    assert not Peers.everybody(3).is_table


def test_combine_of_nothing_is_nothing() -> None:
    table = Peers(torch.ones(3, 2).bool(), torch.tensor([[1, 2], [0, 2], [0, 1]]))
    assert table.combine(torch.ones(3, 2), torch.zeros(3, 0)).shape == (3, 0)


def test_what_files_keep_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix, or of many clients the table; a row of few candidates has no sender in the other columns."""
    values = normal(4, 2)
    matrix = table().kept(values)
    assert isinstance(matrix, torch.Tensor)
    assert torch.equal(matrix, table().dense(values))
    monkeypatch.setattr("scool_ppl.graph.candidates.MANY", 3)
    kept = table().kept(values)
    assert isinstance(kept, Entries)
    peers, found = Peers.read(kept)
    assert torch.equal(peers.mask, MASK)
    assert torch.equal(peers.dense(found), matrix)
    assert torch.equal(Peers.read(matrix)[1], matrix)
    assert isinstance(everybody_but_one().kept(normal(4, 4)), torch.Tensor)


def seated() -> tuple[Peers, torch.Tensor]:
    """The table with two components behind its clients, and weights of all its pairs."""
    return table().with_components(2), torch.rand(4, 4, generator=torch.Generator().manual_seed(1)).double()


def test_components_are_candidates_of_everybody_behind_the_clients() -> None:
    peers, weights = seated()
    assert peers.num_clients == 4
    assert peers.columns()[:, 2:].tolist() == [[4, 5]] * 4
    assert bool(peers.mask[:, 2:].all())
    assert [pair for pair in candidates(peers) if pair[2] < 4] == candidates(table())
    x = normal(6, 3)
    found = peers.combine(weights, x)
    for i in range(4):
        expected = sum(weights[i, m] * x[j] for row, m, j in candidates(peers) if row == i)
        assert torch.allclose(found[i], torch.as_tensor(expected))
    assert torch.equal(peers.shares(weights), weights[:, 2:])
    assert torch.equal(peers.dense(weights), table().dense(weights[:, :2]))
    assert torch.equal(peers.without_components().mask, MASK)
    there = peers.among(torch.tensor([True, False, True, True]))
    assert not bool(there.mask[1].any())
    assert bool(there.mask[[0, 2, 3], 2:].all()), "components are always there"
    assert torch.equal(there.mask[:, :2], table().among(torch.tensor([True, False, True, True])).mask)
    assert torch.equal(peers.lookup(weights, peers), weights.where(peers.mask, 0))


def test_clients_learn_from_one_another_through_components() -> None:
    peers, weights = seated()
    everybody, through = peers.through(weights)
    assert everybody.mask.shape == through.shape == (4, 4)
    direct = table().dense(weights[:, :2])
    for i, j in itertools.product(range(4), repeat=2):
        users = [weights[:, c].sum() for c in (2, 3)]
        expected = direct[i, j] + sum(weights[i, c] * weights[j, c] / users[c - 2] for c in (2, 3))
        assert torch.allclose(through[i, j], expected)
    hard = Peers.of_components(4, 3)
    _, groups = hard.through(torch.eye(3).double()[[0, 2, 0, 0]])
    assert torch.allclose(groups, torch.tensor([[1, 0, 1, 1], [0, 3, 0, 0], [1, 0, 1, 1], [1, 0, 1, 1]]).double() / 3)


@pytest.mark.parametrize("read", [lambda p: p.gather(torch.zeros(4)), lambda p: p.take(torch.zeros(4, 4))])
def test_what_is_of_clients_alone_is_not_read_at_components(read: Any) -> None:
    with pytest.raises(InputError, match=r"components.*choose"):
        read(seated()[0])
