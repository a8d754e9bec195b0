"""The contract of clients: who keeps it, and wrappers, which pass everything on."""

from __future__ import annotations

import inspect
from types import FunctionType
from unittest.mock import Mock, create_autospec, sentinel

import pytest
import torch

from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import AnyClients, Plan, Wrapper
from scool_ppl.train.hostile import HostileClients
from tests.helpers.faulty import FaultyClients
from tests.helpers.unequal import assert_same, clients, federation

NAMES = sorted(name for name in vars(AnyClients) if not name.startswith("_"))
METHODS = [name for name in NAMES if isinstance(vars(AnyClients)[name], FunctionType)]
PROPERTIES = [name for name in NAMES if name not in METHODS]


def test_clients_and_wrappers_of_them_keep_the_contract() -> None:
    inside = clients(federation())
    assert isinstance(inside, AnyClients)
    assert isinstance(Wrapper(inside), AnyClients)
    assert isinstance(Wrapper(Wrapper(inside)), AnyClients)
    assert isinstance(HostileClients(inside, "scaled"), AnyClients)
    assert not isinstance(federation(), AnyClients)


def test_a_wrapper_has_all_that_the_contract_names() -> None:
    assert {"train", "answer", "evaluate", "names", "facts"} <= set(NAMES)
    assert set(NAMES) == {name for name in vars(Wrapper) if not name.startswith("_")}


@pytest.mark.parametrize("kind", [Clients, Wrapper, HostileClients])
@pytest.mark.parametrize("name", METHODS)
def test_questions_are_put_to_all_of_them_alike(name: str, kind: type) -> None:
    """By the same names, in the same order, with the same defaults."""
    expected, found = (inspect.signature(getattr(whose, name)).parameters for whose in (AnyClients, kind))
    assert [(each.name, each.kind, each.default) for each in found.values()] == [
        (each.name, each.kind, each.default) for each in expected.values()
    ]


@pytest.mark.parametrize("name", [name for name in METHODS if name != "for_federation"])
def test_a_wrapper_passes_on_what_it_is_given(name: str) -> None:
    inside: Mock = create_autospec(AnyClients, instance=True)
    parameters = list(inspect.signature(getattr(AnyClients, name)).parameters.values())[1:]
    given = {each.name: getattr(sentinel, each.name) for each in parameters}
    answered = getattr(Wrapper(inside), name)(**given)
    asked = getattr(inside, name)
    assert asked.call_count == 1
    call = asked.call_args
    assert inspect.signature(asked).bind(*call.args, **call.kwargs).arguments == given
    assert answered is asked.return_value or (name == "use_executor" and answered is None)


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_wrapper_is_what_is_inside(name: str) -> None:
    inside = Mock(spec_set=NAMES)
    setattr(inside, name, getattr(sentinel, name))
    assert getattr(Wrapper(inside), name) is getattr(sentinel, name)


def test_a_wrapper_for_another_federation_wraps_the_clients_inside_for_it() -> None:
    inside, fewer = clients(federation()), federation().select([2, 0])
    around = FaultyClients(Wrapper(inside))
    moved = around.for_federation(fewer)
    assert type(moved) is FaultyClients
    assert type(moved.clients) is Wrapper
    assert type(moved.clients.clients) is Clients
    assert moved.names == moved.clients.clients.names == ("client 2", "client 0")
    assert moved.federation is fewer
    # Whoever had the clients before still has all of them.
    assert around.names == inside.names == federation().names
    assert_same(
        moved.train(moved.init(0), None, Plan()).params,
        {name: value[[2, 0]] for name, value in inside.train(inside.init(0), None, Plan()).params.items()},
        1e-12,
    )


def test_a_wrapper_may_change_one_answer_and_leave_the_others() -> None:
    class Heavier(Wrapper):
        @property
        def bytes_per_model(self) -> int:
            return 2 * super().bytes_per_model

    inside = clients(federation())
    assert Heavier(inside).bytes_per_model == 2 * inside.bytes_per_model
    assert Heavier(inside).facts() == inside.facts()
    assert torch.equal(Heavier(inside).evaluate(inside.init(0)).loss, inside.evaluate(inside.init(0)).loss)
