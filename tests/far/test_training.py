"""Training elsewhere: optimisers, absences, terms of mixing rules, against the same clients in one process."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from scool_ppl.far import Host, LocalFabric, RemoteClients
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import AnyClients, Coupling, Plan, Pull, Shares, Trained
from scool_ppl.train.questions import Params
from tests.helpers.far import Faulty, hosts, remote
from tests.helpers.refusals import refuses
from tests.helpers.unequal import ADAM, SGD, assert_same, clients, federation

PEERS = Peers.everybody(4)
WEIGHTS = torch.tensor([[0, 0.3, 0.2, 0], [0.1, 0, 0, 0.5], [0.7, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.float64)


def moved(params: Params) -> Params:
    place = torch.arange(4.0, dtype=torch.float64) / 9
    return {name: value + place.view(4, *(1,) * (value.dim() - 1)) for name, value in params.items()}


def rounds(whose: AnyClients, *plans: Plan) -> Trained:
    """These rounds of training one after the other, from networks that differ."""
    params, state = moved(whose.init(0)), None
    for number, plan in enumerate(plans):
        trained = whose.train(params, state, plan._replace(seed=4, round=number))
        params, state = trained.params, trained.optimizer_state
    return trained


def agree(found: Trained, expected: Trained, tolerance: float = 1e-12) -> None:
    assert_same(found.params, expected.params, tolerance)
    assert_same(found.optimizer_state, expected.optimizer_state, tolerance)
    torch.testing.assert_close(found.loss.double(), expected.loss.double(), rtol=0, atol=1e-9, equal_nan=True)
    assert torch.equal(found.moved, expected.moved)


@pytest.mark.parametrize("parts", [[[0], [1], [2], [3]], [[0, 1], [2, 3]]], ids=["apart", "two"])
@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["momentum", "adam"])
def test_optimisers_go_out_and_come_back_with_absences(optimizer: Any, parts: list[list[int]]) -> None:
    """Some sit the first rounds out, so that it matters who has begun; clients have unequal numbers of batches."""
    here = clients(federation(), "loop", optimizer=optimizer)
    plans = (Plan(2, absent=(1, 3)), Plan(1, absent=(0,)), Plan(steps=3), Plan(epochs=0))
    for count in range(1, len(plans) + 1):
        agree(rounds(remote(here, parts), *plans[:count]), rounds(here, *plans[:count]))


TERMS: dict[str, dict[str, Any]] = {
    "pull": {},
    "coupling": {"pull": Coupling(WEIGHTS, PEERS)},
    "shares": {"shares": Shares(WEIGHTS, torch.tensor([1.0, 0.5, 0.0, 0.0], dtype=torch.float64))},
    "sampled": {"shares": Shares(WEIGHTS, torch.ones(4, dtype=torch.float64), sampled=True)},
    "absent": {"shares": Shares(WEIGHTS.clone(), torch.ones(4, dtype=torch.float64)), "absent": (3,)},
    "coupling, absent": {"pull": Coupling(WEIGHTS, PEERS.among(torch.arange(4) != 2)), "absent": (2,)},
}


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["momentum", "adam"])
def test_what_a_mixing_rule_adds_to_every_step_is_added_elsewhere(optimizer: Any, terms: str) -> None:
    here = clients(federation(), "loop", optimizer=optimizer)
    added = dict(TERMS[terms])
    if terms == "pull":
        centre = {name: value.flip(0) for name, value in moved(here.init(0)).items()}
        added = {"pull": Pull(centre, torch.tensor([0.1, 0.0, 0.4, 0.2], dtype=torch.float64))}
    plans = (Plan(1), Plan(2, **added), Plan(1, **added))
    agree(rounds(remote(here), *plans), rounds(here, *plans), 1e-10)


def test_far_away_a_coupling_holds_everybody_where_the_round_began() -> None:
    here = clients(federation(), "loop")
    there = RemoteClients(Faulty(LocalFabric(*hosts(here)), near=False))
    coupled = Plan(2, pull=Coupling(WEIGHTS, PEERS))
    held = coupled._replace(pull=Coupling(WEIGHTS, PEERS).held(moved(here.init(0))))
    agree(rounds(there, coupled), rounds(here, held))
    assert not torch.equal(rounds(here, coupled).loss, rounds(here, held).loss)
    refuses(lambda: rounds(there, Plan(1, **TERMS["shares"])), "takes two messages a step")


def test_noise_that_is_drawn_elsewhere_is_not_shared() -> None:
    data = federation((9, 9, 9, 9))
    noisy = partial(nn.Sequential, nn.Linear(5, 3), nn.Dropout(0.5), nn.Linear(3, 3))
    there = RemoteClients(LocalFabric(Host(Clients(data, noisy, executor="loop"))))
    assert there.train(there.init(0), None, Plan(1)).loss.isfinite().all()
    for terms in ("shares", "coupling"):
        refuses(lambda terms=terms: there.train(there.init(0), None, Plan(1, **TERMS[terms])), "as dropout does")
