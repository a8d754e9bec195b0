"""Parts are what their definition says, and declarations that cannot be are one line."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from scool_ppl import InputError
from scool_ppl.train.networks import CNN, MLP
from scool_ppl.train.networks.parts import EVERYTHING, Parts, declared
from tests.helpers import small

NAMED = ("weight", "bias")
NAMES = ("1.weight", "1.bias", "3.weight", "3.bias")


def network() -> nn.Module:
    return MLP(4, 3, (3,))


def test_parameters_cooperate_unless_they_are_said_not_to() -> None:
    assert declared(network()) == EVERYTHING
    assert declared(network(), ("1.*",)) == Parts(("1.weight", "1.bias"), ())
    assert declared(network(), ("1.weight",), ("3.b*", "3.weight")) == Parts(("1.weight",), ("3.weight", "3.bias"))


def test_head_is_the_last_layer_and_body_all_before_it() -> None:
    assert declared(network(), private=("head",)).private == ("3.weight", "3.bias")
    assert declared(network(), private=("body",)).private == ("1.weight", "1.bias")
    assert declared(CNN(1, 4, 2, 0.1), ("body",)).frozen == tuple(f"{n}.{kind}" for n in (0, 3, 7) for kind in NAMED)
    nested = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.LSTM(2, 2)))
    head = declared(nested, private=("head",)).private
    assert {name.rpartition(".")[0] for name in head} == {"1.1"}
    assert len(head) == 4
    assert declared(nested, ("body",)).frozen == ("0.weight", "0.bias", "1.0.weight", "1.0.bias")
    named = nn.ModuleDict({"head": nn.Linear(2, 2), "last": nn.Linear(2, 2)})
    named.register_parameter("body", nn.Parameter(torch.zeros(2)))
    assert declared(named, private=("body",)).private == ("body",), "a parameter's own name comes first"
    assert declared(named, private=("head",)).private == ("last.weight", "last.bias")
    with pytest.raises(InputError, match="body', which no parameter matches"):
        declared(nn.Linear(2, 2), private=("body",))


def test_what_needs_no_gradient_is_frozen() -> None:
    module = network()
    module.get_parameter("1.bias").requires_grad_(False)
    assert declared(module, private=("3.*",)) == Parts(("1.bias",), ("3.weight", "3.bias"))
    with pytest.raises(InputError, match=r"^parameter '1.bias' is private, and frozen by the network itself; expected"):
        declared(module, private=("1.bias",))


@pytest.mark.parametrize(
    ("frozen", "private", "told"),
    [
        ((), ("head.*",), r"private has 'head.\*', which no parameter matches; the closest are .*'3.\*', head or body"),
        (("3.wieght",), (), r"frozen has '3.wieght', which no parameter matches; the closest are 3.weight"),
        (("1.*",), ("*.bias",), r"parameter '1.bias' is private, and frozen by frozen=; expected one of the two"),
        (("1.*",), ("3.*",), r"all parameters \(1.weight, .*\) are frozen or private, expected some that cooperate"),
        ((), "3.*", r"private is the text '3.\*', expected a list of names; write \['3.\*'\]"),
    ],
)
def test_declarations_that_cannot_be_are_one_line(frozen: tuple[str, ...], private: tuple[str, ...], told: str) -> None:
    with pytest.raises(InputError, match=told) as error:
        declared(network(), frozen, private)
    assert "\n" not in str(error.value)


def test_a_network_meets_images_with_what_is_private_of_their_owner() -> None:
    parts, stack = Parts(private=("v",)), {"u": small.normal(3, 2), "v": small.normal(3, 4, seed=1)}
    found = parts.completed(stack, torch.tensor([2, 0]), torch.tensor([1, 0]))
    assert found["u"].equal(stack["u"][[2, 0]])
    assert found["v"].equal(stack["v"][[1, 0]])
    assert parts.cooperating(stack).keys() == {"u"}
    assert parts.at_home(stack).keys() == {"v"}
