"""Who is at fault when training breaks: whose network or loss is not finite, and nobody else."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scool_ppl.errors import ClientError
from scool_ppl.train.contract import Trained
from scool_ppl.train.faults import blame, check_training, warn_of_explosion
from tests.helpers.memory import Allocations

NAMES = ("a", "b", "c", "d")
ALL = torch.ones(4, dtype=torch.bool)


def trained() -> Trained:
    params = {"weight": torch.ones(4, 2, 3), "scale": torch.ones(4)}
    state = {"step/weight": torch.ones(4), "momentum_buffer/weight": torch.ones(4, 2, 3), "started": ALL.clone()}
    return Trained(params, state, torch.ones(4), ALL.clone())


def reasons(found: Trained, present: Tensor = ALL) -> dict[str, str]:
    try:
        check_training(found, present, NAMES)
    except ClientError as fault:
        return fault.reasons
    return {}


def test_finite_networks_are_nobodys_fault() -> None:
    assert reasons(trained()) == {}


def test_sound_networks_are_not_copied() -> None:
    found = trained()
    large = found._replace(params={"weight": torch.ones(4, 50, 50)})
    with Allocations() as made:
        check_training(large, ALL, NAMES)
    assert made.of_at_least(large.params["weight"].numel()) == 0


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", ["weight", "scale", "step/weight", "momentum_buffer/weight"])
def test_one_broken_number_anywhere_is_its_clients_fault(where: str, broken: float) -> None:
    found = trained()
    value = {**found.params, **found.optimizer_state}[where]
    value[(2, *[1] * (value.dim() - 1))] = broken
    assert reasons(found) == {"c": "its network is not finite after training"}


def test_a_loss_counts_for_those_who_moved() -> None:
    found = trained()
    found.loss[1] = found.loss[3] = torch.nan
    found.moved[3] = False  # without images there is no loss
    assert reasons(found) == {"b": "its training loss is not finite"}


def test_whoever_is_absent_is_not_blamed_for_the_network_it_left() -> None:
    found = trained()
    found.params["weight"][0] = torch.nan
    present = ALL.clone()
    present[0] = False
    assert reasons(found, present) == {}
    assert list(reasons(found)) == ["a"]


def test_every_client_has_the_first_of_its_reasons() -> None:
    first, second = torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False])
    with pytest.raises(ClientError) as caught:
        blame({"it was late": first, "it was wrong": second}, NAMES)
    assert caught.value.reasons == {"a": "it was late", "c": "it was late", "b": "it was wrong"}
    assert str(caught.value) == "a: it was late; c: it was late; b: it was wrong"
    blame({"it was late": ~ALL}, NAMES)


def test_a_loss_far_beyond_chance_is_warned_of() -> None:
    assert not warn_of_explosion(900.0, 0.69, 1)
    assert not warn_of_explosion(float("nan"), 0.69, 1)
    with pytest.warns(
        UserWarning, match="the training loss of round 2 is 1e[+]13, that of knowing nothing 0.69: lower the"
    ):
        assert warn_of_explosion(1e13, 0.69, 2)
