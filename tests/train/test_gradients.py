"""Alignment of gradients at midpoints, against autograd one pair at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scool_ppl.graph.candidates import Peers
from scool_ppl.train import gradients
from scool_ppl.train.clients import Clients
from scool_ppl.train.questions import Alignment, Params
from tests.helpers.small import clients, close, gradient, loss, networks

K = 4
TABLE = Peers(
    torch.tensor([[True, True], [True, False], [True, True], [False, False]]),
    torch.tensor([[1, 3], [0, 99], [0, 2], [1, 1]]),
)
"""A pair of a client with itself, one asked for from both sides, a client without any, and an entry that is no client."""


def one_sided() -> Peers:
    mask = ~torch.eye(K, dtype=torch.bool)
    mask[1, 0] = mask[2] = False
    return Peers(mask)


PEERS = {
    "everybody": Peers.everybody(K),
    "with self": Peers.everybody(K, includes_self=True),
    "one sided": one_sided(),
    "table": TABLE,
}


def asked(whose: Clients, params: Params, peers: Peers) -> Tensor:
    return whose.answer({"a": Alignment(params, peers)}, seed=0, round=0)["a"]


def by_pair(whose: Clients, params: Params, i: int, j: int) -> Tensor:
    """<grad f_i(m), grad f_j(m)> at m = (theta_i + theta_j) / 2."""
    middle = {name: (value[i] + value[j]) / 2 for name, value in params.items()}
    mine, theirs = gradient(middle, whose, i), gradient(middle, whose, j)
    return torch.stack([(mine[name] * theirs[name]).sum() for name in middle]).sum()


@pytest.mark.parametrize("peers", PEERS.values(), ids=PEERS.keys())
@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_alignment_equals_autograd_pair_by_pair(executor: str, peers: Peers) -> None:
    whose = clients(K, executor=executor)
    params = networks(whose)
    found = asked(whose, params, peers)
    assert found.shape == peers.mask.shape
    assert not found.requires_grad
    senders = peers.columns().expand_as(peers.mask)
    for i, m in peers.mask.nonzero().tolist():
        close(found[i, m], by_pair(whose, params, i, int(senders[i, m])))
    assert found[~peers.mask].eq(0).all()
    assert len(found[peers.mask].round(decimals=6).unique()) > 3


@pytest.mark.parametrize("limit", ["pairs", "parameters"])
def test_pairs_go_in_chunks_and_each_is_computed_once(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    whose = clients(K)
    params = networks(whose)
    whole = asked(whose, params, Peers.everybody(K))
    assert torch.equal(whole, whole.T)
    sizes = []

    def spied(forward: object, networks: Params, pairs: Tensor, probe: object) -> Tensor:
        sizes.append(len(pairs))
        return aligned(forward, networks, pairs, probe)  # type: ignore[no-any-return, operator]

    aligned = gradients._aligned
    monkeypatch.setattr(gradients, "_aligned", spied)
    size = sum(value[0].numel() for value in params.values())
    for name, most in {"pairs": {"PAIRS_AT_ONCE": 4}, "parameters": {"_ELEMENTS_AT_ONCE": 4 * size}}[limit].items():
        monkeypatch.setattr(gradients, name, most)
    close(asked(whose, params, Peers.everybody(K)), whole)
    assert sizes == [4, 2]  # 6 pairs of 4 clients, each asked for from both sides


def test_whoever_is_masked_is_not_computed_with() -> None:
    whose = clients(K)
    params = {name: value.index_fill(0, torch.tensor([2]), torch.nan) for name, value in networks(whose).items()}
    present = torch.tensor([True, True, False, True])
    assert asked(whose, params, Peers.everybody(K).among(present)).isfinite().all()
    nobody = Peers(torch.zeros(K, K, dtype=torch.bool))
    assert asked(whose, params, nobody).eq(0).all()


def test_alignment_is_how_fast_one_loss_changes_along_the_other_gradient() -> None:
    """By finite differences: d/dh f_i(m + h grad f_j(m)) at h = 0."""
    whose = clients(K)
    params = networks(whose)
    found = asked(whose, params, Peers.everybody(K))
    for i, j in [(0, 1), (3, 1), (2, 0)]:
        middle = {name: (value[i] + value[j]) / 2 for name, value in params.items()}
        slope = gradient(middle, whose, j)
        ahead, behind = (
            loss({name: value + h * slope[name] for name, value in middle.items()}, whose, i) for h in (1e-5, -1e-5)
        )
        close(found[i, j], (ahead - behind) / 2e-5, 1e-7)
