"""Stacks: who holds which rows, and what needs the rows of others, of stacks that are shared and of plain ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from scool_ppl.graph import stacks
from scool_ppl.graph.candidates import Peers, not_finite
from scool_ppl.graph.stacks import is_shared, part_of, pieces, rows_here, shared, unshared
from tests.helpers.shared import only_rank
from tests.helpers.small import normal

TABLE = Peers(
    torch.tensor([[True, True], [True, False], [False, False], [True, True], [True, True]]),
    torch.tensor([[1, 3], [2, 0], [0, 1], [1, 2], [0, 0]]),
)


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    with only_rank() as found:
        yield found


@pytest.mark.parametrize("count", [1, 5, 8, 9])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_ranks_hold_the_rows_that_torch_would_give_them(count: int, world: int) -> None:
    cut = [chunk.tolist() for chunk in torch.arange(count).chunk(world)]
    assert [list(part_of(count, rank, world)) for rank in range(world)] == cut + [[]] * (world - len(cut))


def test_a_plain_stack_is_one_piece_and_whole() -> None:
    stack = normal(5, 3)
    assert not is_shared(stack)
    assert [(start, rows is stack) for start, rows in pieces(stack)] == [(0, True)]
    assert unshared(stack) is stack
    assert rows_here(stack) == (range(5), stack)


def test_a_shared_stack_passes_by_in_pieces(mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = normal(5, 3, 2)
    stack = shared(rows, 5, mesh)
    assert is_shared(stack)
    monkeypatch.setattr(stacks, "PIECE", 2 * 6 * 8)
    found = list(pieces(stack))
    assert [start for start, _ in found] == [0, 2, 4]
    assert torch.equal(torch.cat([piece for _, piece in found]), rows)
    assert torch.equal(unshared(stack.flatten(1).sum(1)), rows.flatten(1).sum(1))
    assert torch.equal(rows_here(stack)[1], rows)


@pytest.mark.parametrize("peers", [Peers.everybody(5), Peers.everybody(5, includes_self=True), TABLE])
def test_peers_do_with_shared_stacks_what_they_do_with_plain_ones(
    mesh: Any, monkeypatch: pytest.MonkeyPatch, peers: Peers
) -> None:
    monkeypatch.setattr(stacks, "PIECE", 2 * 6 * 8)
    rows, other, weights = normal(5, 3, 2), normal(5, 6, seed=4), normal(*peers.mask.shape, seed=5).abs()
    broken = rows.index_fill(0, torch.tensor([2]), torch.inf)
    for values in (rows, broken):
        found = peers.combine(weights, shared(values, 5, mesh))
        torch.testing.assert_close(unshared(found), peers.combine(weights, values), rtol=0, atol=1e-14, equal_nan=True)
        assert is_shared(found)
        told, known = not_finite(shared(values.flatten(1), 5, mesh)), not_finite(values.flatten(1))
        assert (told is None) == (known is None)
        assert told is None or torch.equal(told, known)
    mine, theirs = shared(rows.flatten(1), 5, mesh), shared(other, 5, mesh)
    for norm in (1.0, 2.0):
        expected = peers.distance(rows.flatten(1), other, norm)
        torch.testing.assert_close(peers.distance(mine, theirs, norm), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(peers.inner(mine, theirs), peers.inner(rows.flatten(1), other), rtol=0, atol=1e-14)
