"""Peers and peer policies against loops over receivers and columns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.look.peers import All, PeerPolicy, Top
from scool_ppl.train.start import RoundStart

SENDERS = torch.tensor([[1, 3], [0, 2], [3, 0], [2, 1]])
MASK = torch.tensor([[True, True], [True, False], [False, False], [True, True]])


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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


def chosen(
    policy: PeerPolicy,
    peers: Peers | None,
    weights: Tensor | None,
    round: int,
    *,
    num_clients: int = 4,
    includes_self: bool = False,
) -> Peers:
    """What a policy chooses in a round, after one with these candidates and this graph."""
    clients: Any = SimpleNamespace(num_clients=num_clients)
    return policy(
        RoundStart(
            clients=clients,
            params={},
            start={},
            peers=peers,
            weights=weights,
            memory={},
            includes_self=includes_self,
            epochs=1,
            steps=None,
            round=round,
            seed=0,
        )
    )


def test_all_keeps_everybody_and_any_table_it_is_given() -> None:
    first = chosen(All(), None, None, 0, num_clients=3)
    assert torch.equal(first.mask, ~torch.eye(3, dtype=torch.bool))
    assert bool(chosen(All(), None, None, 0, num_clients=3, includes_self=True).mask.all())
    for peers in (first, table()):
        assert chosen(All(), peers, normal(*peers.mask.shape), 99) is peers


def test_top_starts_with_everybody_and_waits() -> None:
    policy = Top(keep=2, after=3)
    everybody = chosen(policy, None, None, 0)
    assert everybody.senders is None
    assert torch.equal(everybody.mask, ~torch.eye(4, dtype=torch.bool))
    for round in (1, 2):
        assert chosen(policy, everybody, torch.rand(4, 4), round) is everybody
    assert chosen(policy, everybody, torch.rand(4, 4), 3).mask.shape == (4, 2)


def test_top_keeps_the_heaviest_senders() -> None:
    weights = torch.tensor([[9.0, 0.1, 0.4, 0.3], [0.2, 9.0, 0.1, 0.3], [0.5, 0.6, 9.0, 0.7], [0.3, 0.2, 0.1, 9.0]])
    peers = chosen(Top(keep=2, after=1), Peers.everybody(4), weights, 1)
    # The diagonal is heaviest but not a candidate; senders stay in ascending order.
    assert peers.senders is not None
    assert peers.senders.tolist() == [[2, 3], [0, 3], [1, 3], [0, 1]]
    assert bool(peers.mask.all())
    # A shrunken table is not shrunk again, but a smaller `keep` shrinks it further, by the table's own columns.
    assert chosen(Top(keep=2, after=1), peers, peers.take(weights), 2) is peers
    single = chosen(Top(keep=1, after=1), peers, peers.take(weights), 2)
    assert single.senders is not None
    assert single.senders.tolist() == [[2], [3], [3], [0]]


def test_top_never_turns_a_masked_pair_into_a_candidate() -> None:
    peers = everybody_but_one()
    weights = torch.full((4, 4), 0.9).masked_fill(peers.mask, 0.1)
    shrunk = chosen(Top(keep=2, after=0), peers, weights, 1)
    assert {(i, j) for i, _, j in candidates(shrunk)} <= {(i, j) for i, _, j in candidates(peers)}
    assert shrunk.mask.sum(1).tolist() == [2, 2, 0, 2]


def test_top_keeps_all_where_there_are_no_more() -> None:
    two = Peers.everybody(2)
    assert chosen(Top(keep=2, after=0), two, torch.rand(2, 2), 5) is two
    one = Peers.everybody(1)
    assert chosen(Top(keep=1, after=0), one, torch.zeros(1, 1), 5) is one


@pytest.mark.parametrize("options", [{"keep": 0}, {"keep": -1}, {"keep": 1, "after": -1}])
def test_top_refuses_impossible_numbers(options: dict[str, int]) -> None:
    with pytest.raises(InputError, match="expected keep >= 1 and after >= 0"):
        Top(**options)
