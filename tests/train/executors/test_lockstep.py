"""Clients who pull one another within a round: every step by hand, and the same by either executor."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from scool_ppl.graph.candidates import Peers
from scool_ppl.train.contract import Coupling, Plan
from tests.helpers.small import normal, uniform
from tests.helpers.unequal import ADAM, SGD, SIZES, assert_agree, both, clients, distinct, federation, module_of

K = len(SIZES)


def coupling(seed: int = 5) -> Coupling:
    """Weights that are not symmetric; client 1 is pulled by nobody."""
    weights = uniform(K, K, seed=seed).fill_diagonal_(0)
    weights[1] = 0
    return Coupling(weights, Peers.everybody(K))


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_everybody_is_pulled_to_where_the_others_are_at_that_step(executor: str) -> None:
    data, rate = federation(), 0.1
    network = clients(data, executor, optimizer=partial(torch.optim.SGD, lr=rate))
    plan, start, weights = Plan(epochs=2, pull=coupling()), distinct(network), coupling().weights
    batches = network.batches(plan)
    networks = [module_of(start, client) for client in range(K)]
    steps = batches.active.sum(1)
    assert len(steps.unique()) > 2  # some run out of batches early, and go on pulling from where they are
    for step in range(int(steps.max())):
        slopes: list[dict[str, Tensor]] = []
        for client, module in enumerate(networks):
            index, weight, targets = (field[client, step] for field in batches[:3])
            losses = nn.functional.cross_entropy(module(data.inputs[index].double()), targets, reduction="none")
            found = torch.autograd.grad((losses * weight).sum(), list(module.parameters()))
            slopes.append(dict(zip(dict(module.named_parameters()), found, strict=True)))
            for other, theirs in enumerate(networks):
                for name, leaf in module.named_parameters():
                    slopes[-1][name] = slopes[-1][name] + weights[client, other] * (leaf - theirs.get_parameter(name))
        with torch.no_grad():
            for client, module in enumerate(networks):
                for name, leaf in module.named_parameters():
                    leaf -= rate * float(step < steps[client]) * slopes[client][name]
    trained = network.train(start, None, plan)
    for client, module in enumerate(networks):
        for name, leaf in module.named_parameters():
            torch.testing.assert_close(trained.params[name][client], leaf.detach(), rtol=0, atol=1e-12)
    # Held where the round began they would be elsewhere.
    held = network.train(start, None, plan._replace(pull=coupling().held(start)))
    assert float((held.params["1.weight"] - trained.params["1.weight"]).abs().max()) > 1e-3


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["momentum", "adam"])
def test_executors_agree_in_lock_step_over_two_rounds(optimizer: object) -> None:
    results = []
    for network in both(federation(), optimizer=optimizer):
        first = network.train(distinct(network), None, Plan(epochs=2, absent=(2,), pull=coupling()))
        assert first.moved.tolist() == [True, True, False, True]
        assert torch.equal(first.params["1.weight"][2], distinct(network)["1.weight"][2])
        results.append(network.train(first.params, first.optimizer_state, Plan(round=1, pull=coupling(6))))
    assert_agree(*results)


def test_a_pull_of_nobody_is_no_pull() -> None:
    for network in both(federation()):
        nobody = Coupling(torch.zeros(K, K), Peers.everybody(K))
        plan = Plan(epochs=2)
        assert_agree(
            network.train(distinct(network), None, plan._replace(pull=nobody)),
            network.train(distinct(network), None, plan),
        )
        nothing = network.train(distinct(network), None, Plan(epochs=0, pull=coupling()))
        assert nothing.loss.isnan().all()
        assert torch.equal(nothing.params["1.weight"], distinct(network)["1.weight"])


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_every_step_draws_noise_of_its_own(executor: str) -> None:
    network = clients(
        federation((4, 4)),
        executor,
        network=lambda: nn.Sequential(nn.Linear(5, 40), nn.Dropout(0.5), nn.Linear(40, 3)),
        optimizer=partial(torch.optim.SGD, lr=0.0),
    )
    pull = Coupling(torch.ones(2, 2), Peers.everybody(2))
    start = network.init(0)
    # Nobody moves and the batch is all that there is: only noise can tell one step from another.
    lost = [network.train(start, None, Plan(steps=steps, pull=pull)).loss for steps in (1, 2)]
    assert not torch.allclose(*lost)
    assert torch.equal(network.train(start, None, Plan(steps=2, pull=pull)).loss, lost[1])


def test_what_is_held_next_is_in_the_memory_of_what_was_held_before() -> None:
    pull, first, second = coupling(), {"a": normal(K, 3, 2, seed=1)}, {"a": normal(K, 3, 2, seed=2)}
    expected = pull.held(second).centre["a"]
    before = pull.held(first)
    memory = before.centre["a"].data_ptr()
    assert not before.centre["a"].equal(expected)
    held = pull.held(second, before)
    assert held.centre["a"].equal(expected)
    assert held.centre["a"].data_ptr() == memory


def test_what_is_held_is_the_weighted_sum_of_those_who_are_finite() -> None:
    senders = torch.tensor([[1, 2], [2, 0], [0, 1]])
    peers, weights = Peers(torch.ones(3, 2, dtype=torch.bool), senders), uniform(3, 2, seed=1)
    params = {"a": normal(3, 4, seed=2), "b": normal(3, 2, 2, seed=3)}
    params["b"][1, 0, 0] = torch.nan
    pull = Coupling(weights, peers).held(params)
    assert pull.strength.tolist() == pytest.approx([float(weights[0, 1]), 0.0, float(weights[2, 0])])
    torch.testing.assert_close(pull.centre["a"][0], params["a"][2])
    torch.testing.assert_close(pull.centre["b"][2], params["b"][0])
