"""Training on others' images with private parts descends one objective of all clients, written out by plain loops."""

from __future__ import annotations

import pytest
import torch

from scool_ppl import InputError
from scool_ppl.train import Plan, Shares
from scool_ppl.train.contract import Pull
from scool_ppl.train.questions import Params
from tests.helpers import small

HEAD = ("3.weight", "3.bias")


def completed(params: Params, network: int, owner: int) -> small.Network:
    """(u_network, v_owner)"""
    return {name: value[owner if name in HEAD else network] for name, value in params.items()}


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_networks_that_learn_from_others_images_do_so_with_the_owners_private_part(executor: str) -> None:
    """J(u, v) = sum_ij w_ij L(D_j; u_i, v_j), of which everybody takes a step; and a pull on u."""
    whose, used = small.clients(executor=executor, private=HEAD), small.uniform(4, 4)
    params = small.networks(whose)
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    total = sum(used[i, j] * small.loss(completed(leaves, i, j), whose, j) for i in range(4) for j in range(4))
    slopes = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
    shares = Shares(used.clone().fill_diagonal_(0), used.diagonal().clone())
    found = whose.train(params, None, Plan(steps=1, shares=shares))
    pull = Pull(whose.parts.cooperating(small.networks(whose, seed=40)), small.uniform(4, seed=5))
    pulled = whose.train(params, None, Plan(steps=1, shares=shares, pull=pull))
    for name, value in params.items():
        small.close(found.params[name], value - small.RATE * slopes[name], 1e-12)
        strength = pull.strength.reshape(-1, *[1] * (value.dim() - 1)) if name in pull.centre else 0.0
        towards = strength * (value - pull.centre.get(name, value))
        small.close(pulled.params[name], value - small.RATE * (slopes[name] + towards), 1e-12)
    for i in range(4):
        small.close(
            found.loss[i], sum(used[i, j] * small.loss(completed(params, i, j), whose, j) for j in range(4)), 1e-12
        )


def test_networks_that_draw_noise_are_refused() -> None:
    def noisy() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(), torch.nn.Linear(4, 3))

    whose = small.Clients(small.federation(), noisy, private=("2.*",), dtype=torch.float64)
    with pytest.raises(InputError, match="private parts of networks with dropout cannot"):
        whose.train(whose.init(0), None, Plan(steps=1, shares=Shares(torch.zeros(4, 4), torch.ones(4))))


def test_a_client_that_learns_from_nobody_else_learns_as_alone() -> None:
    whose = small.clients(private=HEAD, optimizer=small.partial(torch.optim.SGD, lr=0.1, momentum=0.9), batch_size=3)
    params, alone = small.networks(whose), Shares(torch.zeros(4, 4, dtype=torch.float64), torch.ones(4).double())
    first, one = (whose.train(params, None, Plan(epochs=2, shares=shares)) for shares in (alone, None))
    for again, other in (
        (first, one),
        tuple(
            whose.train(each.params, each.optimizer_state, Plan(epochs=1, round=1, shares=shares))
            for each, shares in ((first, alone), (one, None))
        ),
    ):
        for found, expected in ((again.params, other.params), (again.optimizer_state, other.optimizer_state)):
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                small.close(found[name], value, 1e-12)
        small.close(again.loss, other.loss, 1e-12)
