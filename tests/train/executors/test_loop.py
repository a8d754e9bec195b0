"""The loop: one client at a time on worker threads, each with a module of its own."""

from __future__ import annotations

import threading
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from scool_ppl.tasks.categorical import Classification
from scool_ppl.train.batches import shuffled
from scool_ppl.train.contract import Plan
from scool_ppl.train.executors.loop import Loop
from scool_ppl.train.networks import CNN, MLP
from tests.helpers.unequal import ADAM, clients, distinct, federation, module_of, own


def test_an_error_in_a_worker_reaches_the_caller_and_the_next_call_works() -> None:
    torch.set_num_threads(2)
    network = clients(federation(), "loop")
    params = network.init(0)
    plan = shuffled(federation(), 4, epochs=1, steps=None, seed=0, round=0)
    with pytest.raises(IndexError):
        network.follow(params, None, plan._replace(index=plan.index + 10**6), Plan(epochs=1, seed=0, round=0))
    assert network.train(params, None, Plan(epochs=1, seed=0, round=0)).loss.isfinite().all()
    assert torch.get_num_threads() == 2


def loop_of(module: nn.Module, random: bool = False) -> Loop:
    return Loop(module, Classification(3), partial(torch.optim.SGD, lr=0.1), random)


def test_there_is_a_worker_for_every_thread_but_noise_is_drawn_by_one() -> None:
    torch.set_num_threads(3)
    assert (loop_of(MLP(5, 3)).workers, loop_of(MLP(5, 3)).together(100)) == (3, 1)
    assert loop_of(nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5)), random=True).workers == 1
    torch.set_num_threads(1)
    assert loop_of(MLP(5, 3)).workers == 1


def test_small_networks_are_trained_by_one_worker_on_one_thread() -> None:
    torch.set_num_threads(2)
    seen: set[tuple[int, int]] = set()

    class Watched(MLP):
        def forward(self, x: Tensor) -> Tensor:
            seen.add((threading.get_ident(), torch.get_num_threads()))
            return super().forward(x)

    network = clients(federation(), "loop", network=lambda: Watched(5, 3))
    seen.clear()  # it was tried on an example when it was built
    network.train(network.init(0), None, Plan())
    assert seen == {(threading.get_ident(), 1)}
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("shared", [False, True])
def test_outputs_are_those_of_each_network_and_can_be_derived(shared: bool) -> None:
    torch.set_num_threads(2)
    network = clients(federation(), "loop")
    params = {name: value.requires_grad_() for name, value in distinct(network).items()}
    inputs = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loop = loop_of(MLP(5, 3).double())
    common = loop.on_common(params, inputs[0], lambda outputs, which: outputs, block=2)
    found = common if shared else loop.forward(params, inputs)
    for i in range(4):
        module = module_of({name: value.detach() for name, value in params.items()}, i)
        torch.testing.assert_close(found[i], module(inputs[0 if shared else i]), rtol=0, atol=1e-12)
    (slope,) = torch.autograd.grad(found[2].sum(), [params["3.bias"]])
    assert slope[2].eq(6).all()
    assert slope[[0, 1, 3]].eq(0).all()


def test_every_client_counts_its_own_steps() -> None:
    """Adam one client at a time in plain PyTorch, with unequal numbers of batches, over two rounds."""
    data = federation()
    network = clients(data, "loop", optimizer=ADAM)
    start = distinct(network)
    first = network.train(start, None, Plan())
    second = network.train(first.params, first.optimizer_state, Plan(round=1))
    plans = [shuffled(data, 4, epochs=1, steps=None, seed=0, round=round) for round in (0, 1)]
    for client in range(4):
        module = module_of(start, client)
        optimizer = ADAM(module.parameters())
        for plan in plans:
            for index, weight in zip(plan.index[client], plan.weight[client], strict=True):
                if weight.sum() > 0:
                    optimizer.zero_grad()
                    x, y = own(data, client, index[weight > 0])
                    torch.nn.functional.cross_entropy(module(x), y).backward()
                    optimizer.step()
        for name, leaf in module.named_parameters():
            torch.testing.assert_close(second.params[name][client], leaf.detach(), rtol=0, atol=1e-10)
    assert second.optimizer_state["step/1.weight"].tolist() == [8, 2, 4, 16]


def test_images_come_to_convolutions_channels_last() -> None:
    seen: list[Tensor] = []
    module = CNN(3, 8, 3, width=0.125)
    module.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    params = {name: leaf.detach()[None] for name, leaf in module.named_parameters()}
    found = loop_of(module).forward(params, torch.ones(1, 2, 3, 8, 8))
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found[0], module(torch.ones(2, 3, 8, 8)))
