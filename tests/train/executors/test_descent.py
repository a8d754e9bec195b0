"""Steps of an optimiser: what it keeps goes in and out, and what each step descends."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from scool_ppl.tasks.regression import Regression
from scool_ppl.train.batches import Batches, shuffled
from scool_ppl.train.contract import Plan, Pull
from scool_ppl.train.executors.descent import MakeOptimizer, as_laid_out, by_backward, descend, fused, towards
from tests.helpers.unequal import ADAM, EQUAL, assert_same, both, clients, distinct, federation


def test_a_pull_is_the_gradient_of_a_proximal_term() -> None:
    network = clients(federation(), optimizer=partial(torch.optim.SGD, lr=0.1))
    params, centre = distinct(network), network.init(9)
    strength = torch.tensor([0.3, 0.0, 1.0, 0.1], dtype=torch.float64)
    free = network.train(params, None, Plan(epochs=1, steps=1, seed=0, round=0)).params
    pulled = network.train(params, None, Plan(epochs=1, steps=1, seed=0, round=0, pull=Pull(centre, strength))).params
    for name in params:
        leaf = params[name].clone().requires_grad_()
        scale = strength.view(-1, *(1,) * (leaf.dim() - 1))
        (gradient,) = torch.autograd.grad((scale / 2 * (leaf - centre[name]) ** 2).sum(), leaf)
        torch.testing.assert_close(pulled[name], free[name] - 0.1 * gradient, rtol=0, atol=1e-12)


def test_two_calls_equal_one_long_run_of_the_optimizer() -> None:
    data = federation(EQUAL)
    plan = shuffled(data, 4, epochs=4, steps=None, seed=0, round=0)
    halves = [plan.each(lambda part, half=half: part.chunk(2, dim=1)[half]) for half in (0, 1)]
    for network in both(data, optimizer=ADAM):
        long = network.follow(network.init(0), None, plan, Plan(epochs=1, seed=0, round=0))
        half = network.follow(network.init(0), None, halves[0], Plan(epochs=1, seed=0, round=0))
        rest = network.follow(half.params, half.optimizer_state, halves[1], Plan(epochs=1, seed=0, round=0))
        assert_same(rest.params, long.params, 1e-12)
        assert_same(rest.optimizer_state, long.optimizer_state, 1e-12)
        assert rest.optimizer_state["step/1.weight"].tolist() == [12, 12, 12]
        fresh = network.follow(half.params, None, halves[1], Plan(epochs=1, seed=0, round=0))
        assert not torch.allclose(fresh.params["1.weight"], long.params["1.weight"])


def test_weights_of_samples_are_general() -> None:
    data = federation(EQUAL)
    plan = shuffled(data, 4, epochs=1, steps=1, seed=0, round=0)
    weight = torch.tensor([0.5, 2.0, 0.0, 0.25], dtype=torch.float64).expand(3, 1, 4)
    for network in both(data, optimizer=partial(torch.optim.SGD, lr=1.0)):
        params = distinct(network)
        changed = plan._replace(weight=weight)
        after = network.follow(params, None, changed, Plan(epochs=1, seed=0, round=0)).params
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        for client in range(3):
            w1, b1, w2, b2 = (leaves[name][client] for name in ("1.weight", "1.bias", "3.weight", "3.bias"))
            x = data.inputs[plan.index[client, 0]].double()
            log_p = (((x @ w1.T + b1).relu()) @ w2.T + b2).log_softmax(-1)
            each = -log_p[torch.arange(4), plan.targets[client, 0]]
            (weight[client, 0] * each).sum().backward()
        for name, leaf in leaves.items():
            assert leaf.grad is not None
            torch.testing.assert_close(after[name], params[name] - leaf.grad, rtol=0, atol=1e-12)


def line(steps: int = 3) -> tuple[Tensor, Batches]:
    """Numbers x with targets 2 x - 1, two of them a step."""
    inputs = torch.linspace(-1, 1, 2 * steps, dtype=torch.float64)[:, None]
    index = torch.arange(2 * steps).view(steps, 2)
    return inputs, Batches(index, torch.full((steps, 2), 0.5, dtype=torch.float64), (2 * inputs - 1)[index])


@pytest.mark.parametrize(
    "make",
    [
        partial(torch.optim.SGD, lr=0.1),
        partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.2),
        ADAM,
        partial(torch.optim.RMSprop, lr=0.01, momentum=0.5),
    ],
)
def test_steps_of_one_network_are_those_of_plain_pytorch(make: MakeOptimizer) -> None:
    task, (inputs, batches) = Regression(1.0, 1), line()

    def leaves() -> dict[str, Tensor]:
        return {name: torch.full((1,), 0.3, dtype=torch.float64, requires_grad=True) for name in ("slope", "offset")}

    mine, plain = leaves(), leaves()
    gradients = by_backward(task, lambda x: mine["slope"] * x + mine["offset"], mine)
    losses, state = descend(make, gradients, mine, {}, inputs, batches, pull=None)
    optimizer, expected = make(list(plain.values())), []
    for index in batches.index:
        optimizer.zero_grad()
        x, y = inputs[index], 2 * inputs[index] - 1
        loss = -torch.distributions.Normal(plain["slope"] * x + plain["offset"], 1.0).log_prob(y).mean()
        loss.backward()
        optimizer.step()
        expected.append(loss.detach())
    torch.testing.assert_close(losses, torch.stack(expected))
    assert not losses.requires_grad
    for name, leaf in plain.items():
        torch.testing.assert_close(mine[name], leaf)
        for entry, value in optimizer.state[leaf].items():
            if value is not None:
                torch.testing.assert_close(state[f"{entry}/{name}"], torch.as_tensor(value))


@pytest.mark.parametrize("late", [False, True])
def test_a_gradient_that_is_there_at_some_steps_only(late: bool) -> None:
    """One kernel for all leaves would not do: twice, so that what is kept of some leaves goes in again."""
    task, (inputs, batches) = Regression(1.0, 1), line(4)
    make = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    mine, plain = ({name: torch.full((1,), 0.3).double().requires_grad_() for name in ("a", "b")} for _ in range(2))

    def outputs(leaves: dict[str, Tensor], x: Tensor) -> Tensor:
        return leaves["a"] * x + (leaves["b"] if bool((x > 0).all()) == late else 0.0)

    state: dict[str, Tensor] = {}
    optimizer = make(list(plain.values()))
    for _ in range(2):
        _, state = descend(
            make, by_backward(task, lambda x: outputs(mine, x), mine), mine, state, inputs, batches, pull=None
        )
        for index in batches.index:
            optimizer.zero_grad()
            x = inputs[index]
            (-torch.distributions.Normal(outputs(plain, x), 1.0).log_prob(2 * x - 1).mean()).backward()
            optimizer.step()
    for name, leaf in plain.items():
        torch.testing.assert_close(mine[name], leaf, rtol=0, atol=1e-12)


def test_steps_are_fused_unless_somebody_said_how_they_are_to_be_done() -> None:
    leaf = torch.ones(2, requires_grad=True)
    for options, expected in (
        ({}, True),
        ({"foreach": False}, None),
        ({"foreach": True}, None),
        ({"fused": False}, False),
    ):
        optimizer = torch.optim.SGD([leaf], lr=0.1, **options)
        assert len(fused(optimizer)) == (expected is True)
        assert optimizer.param_groups[0]["fused"] is expected
    assert fused(torch.optim.LBFGS([leaf])) == []


def test_what_belongs_to_a_leaf_is_laid_out_as_it_is() -> None:
    """A fused step takes that for granted: torch itself would mix up the entries."""
    leaf = torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    value = torch.randn(2, 3, 4, 5)
    found = as_laid_out(value, leaf)
    assert found.stride() == leaf.stride()
    assert torch.equal(found, value)
    assert as_laid_out(found, leaf) is found
    sparse = torch.eye(3).to_sparse()
    assert as_laid_out(sparse, torch.zeros(3, 3).mT.contiguous().mT) is sparse


def test_sparse_gradients_are_descended() -> None:
    data = federation(EQUAL)

    class Looked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(4, 3, sparse=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.table((x[:, 0] > 0).long())

    network = clients(data, "loop", network=Looked, optimizer=partial(torch.optim.SGD, lr=0.1))
    start = network.init(0)
    assert not torch.equal(network.train(start, None, Plan()).params["table.weight"], start["table.weight"])


def test_a_parameter_without_a_gradient_moves_by_the_pull_alone() -> None:
    task, (inputs, batches) = Regression(1.0, 1), line(1)
    leaves = {name: torch.ones(1, dtype=torch.float64, requires_grad=True) for name in ("slope", "unused")}
    pull = Pull({name: torch.zeros(1).double() for name in leaves}, torch.tensor(0.5, dtype=torch.float64))
    make = partial(torch.optim.SGD, lr=0.1)
    descend(make, by_backward(task, lambda x: leaves["slope"] * x, leaves), leaves, {}, inputs, batches, pull)
    assert leaves["unused"].item() == pytest.approx(1 - 0.1 * 0.5)
    assert leaves["slope"].item() != pytest.approx(1 - 0.1 * 0.5)


def test_a_pull_on_some_clients_or_on_one() -> None:
    pull = Pull({"weight": torch.arange(6.0).view(3, 2)}, torch.tensor([0.0, 1.0, 2.0]))
    two, one = towards(pull, torch.tensor([2, 0])), towards(pull, 1)
    assert two is not None
    assert one is not None
    assert (two.centre["weight"].tolist(), two.strength.tolist()) == ([[4.0, 5.0], [0.0, 1.0]], [2.0, 0.0])
    assert (one.centre["weight"].tolist(), float(one.strength)) == ([2.0, 3.0], 1.0)
    assert towards(None, 1) is None
