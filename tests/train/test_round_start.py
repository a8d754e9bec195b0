"""Where a round begins: who is present, how it trains, and randomness that is its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scool_ppl.errors import ClientError
from scool_ppl.train.contract import AnyClients, Plan, Pull, Shares
from scool_ppl.train.round_start import Remembered, RoundStart
from tests.helpers.faulty import Fault, FaultyClients
from tests.helpers.small import RATE, clients, close, gradient, networks, one

K = 4


def begun(whose: AnyClients, **fields: Any) -> RoundStart:
    defaults: dict[str, Any] = {
        "clients": whose,
        "params": networks(clients(K)),
        "initial": {},
        "peers": None,
        "weights": None,
        "memory": {},
        "includes_self": False,
        "epochs": 1,
        "steps": 1,
        "round": 3,
        "seed": 7,
    }
    return RoundStart(**{**defaults, **fields})


def test_a_round_says_who_is_there_and_how_they_train() -> None:
    start = begun(clients(K), absent=(1, 3), epochs=2, steps=None)
    assert start.num_clients == K
    assert start.present.tolist() == [True, False, True, False]
    assert start.plan == Plan(epochs=2, steps=None, seed=7, round=3, absent=(1, 3))
    assert begun(clients(K)).present.all()


def test_what_is_remembered_is_found_by_name() -> None:
    value = torch.arange(4.0)
    start = begun(clients(K), memory={"seen": Remembered(value, (0,))})
    assert start.recall("seen") is value
    assert start.recall("heard") is None


def test_training_is_a_step_of_all_present_with_the_terms_given() -> None:
    whose = clients(K)
    start = begun(whose, absent=(2,))
    centre = {name: torch.zeros_like(value) for name, value in start.params.items()}
    strength = torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    trained = start.train(start.params, pull=Pull(centre, strength))
    assert trained.moved.tolist() == [True, True, False, True]
    for i in range(K):
        theta = one(start.params, i)
        slope = gradient(theta, whose, i)
        for name, value in theta.items():
            step = torch.zeros_like(value) if i == 2 else slope[name] + strength[i] * value
            close(trained.params[name][i], value - RATE * step)
    # Only the first client's data count, and they count for nobody but the second.
    others = torch.zeros(K, K, dtype=torch.float64)
    others[1, 0] = 1.0
    trained = begun(whose).train(start.params, shares=Shares(others, torch.zeros(K, dtype=torch.float64)))
    slope = gradient(one(start.params, 1), whose, 0)
    for name, value in start.params.items():
        close(trained.params[name][1], value[1] - RATE * slope[name])
        assert torch.equal(trained.params[name][[0, 2, 3]], value[[0, 2, 3]])


def test_training_goes_on_with_the_optimizer_that_it_is_given() -> None:
    whose = clients(K, optimizer=lambda leaves: torch.optim.SGD(leaves, lr=RATE, momentum=0.9))
    start = begun(whose)
    first = start.train(start.params)
    kept, fresh = start.train(first.params, first.optimizer_state), start.train(first.params)
    for name, value in first.params.items():
        close(kept.params[name] - fresh.params[name], 0.9 * (value - start.params[name]))


def test_a_client_whose_training_breaks_is_named_unless_it_was_absent() -> None:
    broken = FaultyClients(clients(K), Fault("nan loss", 1, 3))
    with pytest.raises(ClientError) as caught:
        begun(broken).train(networks(clients(K)))
    assert caught.value.reasons == {broken.names[1]: "its training loss is not finite"}
    start = begun(broken, absent=(1,))
    assert start.train(start.params).moved.tolist() == [True, False, True, True]


def test_randomness_is_keyed_by_seed_round_and_purpose() -> None:
    def draw(*purpose: str | int, **fields: int) -> float:
        return float(torch.rand(1, generator=begun(clients(K), **fields).generator(*purpose)))

    assert draw("peers") == draw("peers")
    assert len({draw("peers"), draw("mix"), draw("peers", 1), draw("peers", round=4), draw("peers", seed=8)}) == 5
