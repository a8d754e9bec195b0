"""bfloat16: gradients close to those in full precision, parameters float32, both executors, refusals."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch

from scool_ppl import Clients, InputError, load_federation
from scool_ppl.train.contract import Plan
from scool_ppl.train.networks import CNN, network_of
from scool_ppl.train.networks.precision import in_bf16
from tests.helpers.small import normal

FEDERATION = load_federation("groups:digits:clients=3,groups=3,classes=2,train=20,test=20,order=listed")


def test_gradients_are_those_of_full_precision_up_to_the_rounding_of_bfloat16() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = CNN(1, 8, 4, width=0.25)
    short = in_bf16(copy.deepcopy(module))
    x = normal(6, 1, 8, 8).float()
    found = []
    for each in (module, short):
        outputs = each(x)
        assert outputs.dtype == torch.float32
        found.append(torch.autograd.grad(outputs.square().mean(), list(each.parameters())))
    assert dict(short.named_parameters()).keys() == dict(module.named_parameters()).keys()
    for full, rounded in zip(*found, strict=True):
        assert rounded.dtype == torch.float32
        assert 0 < float((full - rounded).norm()) < 0.1 * float(full.norm())


@pytest.mark.parametrize("executor", ["loop", "stacked"])
def test_clients_train_in_bf16_and_keep_float32(executor: str) -> None:
    asked = partial(Clients, FEDERATION, network_of(FEDERATION, "mlp"), executor=executor)
    full, short, again = asked(), asked(precision="bf16"), asked(precision="bf16")
    params = full.init(0)
    trained = [clients.train(params, None, Plan(epochs=3)).params for clients in (full, short, again)]
    for name, value in trained[0].items():
        assert trained[1][name].dtype == torch.float32
        assert torch.equal(trained[1][name], trained[2][name])
        moved = value - params[name]
        assert 0 < float((trained[1][name] - value).norm()) < 0.1 * float(moved.norm())
    assert "in bf16" in short.facts()["network"]
    assert "in bf16" not in full.facts()["network"]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="unknown precision 'bf8'; known: bf16, full; did you mean 'bf16'"):
        Clients(FEDERATION, precision="bf8")
    with pytest.raises(InputError, match="for a network of float64, expected float32"):
        Clients(FEDERATION, dtype=torch.float64, precision="bf16")
