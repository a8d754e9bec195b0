"""Who is at fault when losses are not finite: whoever is in all the pairs that are not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scool_ppl.errors import ClientError
from scool_ppl.graph.candidates import Peers
from scool_ppl.look.faults import check_losses, check_table


def blamed(table: Tensor, peers: Peers, model: str) -> dict[str, str]:
    try:
        check_table(table, peers, "abcdef"[: len(table)], model)  # type: ignore[arg-type]
    except ClientError as fault:
        return fault.reasons
    return {}


@pytest.mark.parametrize("shape", ["everybody", "table"])
@pytest.mark.parametrize("model", ["receiver", "sender"])
def test_whose_fault_a_loss_is(shape: str, model: str) -> None:
    """Entry [i, m] is of one client's network on another's data: all pairs of a client are bad, or nobody is to blame."""
    senders = torch.tensor([[(i + step) % 6 for step in (1, 2, 3)] for i in range(6)])
    peers = Peers.everybody(6) if shape == "everybody" else Peers(torch.ones(6, 3, dtype=torch.bool), senders)
    columns = peers.columns().expand_as(peers.mask)
    rows = torch.arange(6)[:, None].expand_as(columns)
    network, data = (rows, columns) if model == "receiver" else (columns, rows)
    clean = torch.ones(peers.mask.shape)
    assert blamed(clean.masked_fill(~peers.mask, torch.nan), peers, model) == {}
    assert list(blamed(clean.masked_fill(network == 1, torch.inf), peers, model)) == ["b"]
    assert list(blamed(clean.masked_fill(data == 4, torch.nan), peers, model)) == ["e"]
    both = blamed(clean.masked_fill((network == 1) | (data == 4), torch.nan), peers, model)
    assert list(both) == ["b", "e"]
    assert "data" in both["e"]
    assert "data" not in both["b"]
    assert blamed(clean.masked_fill((network == 1) & (data == 2), torch.nan), peers, model) == {}


def test_a_pair_that_belongs_to_both_blames_whoever_is_in_all_of_its_own() -> None:
    table = torch.ones(6, 6)
    table[3] = table[:, 3] = torch.nan
    assert list(blamed(table, Peers.everybody(6), "both")) == ["d"]
    assert blamed(torch.full((2, 2), torch.nan), Peers.everybody(2), "both") == {}


@pytest.mark.parametrize("junk", [torch.nan, torch.inf, -torch.inf])
def test_whoever_is_present_and_has_no_finite_loss_of_its_own_is_named(junk: float) -> None:
    losses, present = torch.tensor([junk, 1.0, junk, 2.0]), torch.tensor([True, True, False, True])
    with pytest.raises(ClientError) as fault:
        check_losses(losses, present, "abcd")
    assert fault.value.reasons == {"a": "its network's loss is not finite"}
    check_losses(losses, losses.isfinite(), "abcd")


def test_a_pair_that_nobody_looks_at_is_nobodys_fault() -> None:
    table = torch.ones(3, 3)
    table[2] = torch.nan
    mask = ~torch.eye(3, dtype=torch.bool)
    assert list(blamed(table, Peers(mask), "receiver")) == ["c"]
    mask[2] = False
    assert blamed(table, Peers(mask), "receiver") == {}
