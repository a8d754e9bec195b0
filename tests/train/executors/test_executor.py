"""What either executor promises, and mixtures of networks' predictions."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from scool_ppl.graph.candidates import Peers
from scool_ppl.train.batches import shuffled
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Plan, Pull
from scool_ppl.train.executors.executor import mixed, who_started, with_started
from scool_ppl.train.questions import Params
from tests.helpers.unequal import EQUAL, assert_agree, assert_same, clients, distinct, federation, module_of, resting

either = pytest.mark.parametrize("executor", ["stacked", "loop"])


@either
def test_masked_clients_do_not_move_nor_do_their_buffers(executor: str) -> None:
    data = federation(EQUAL)
    network = clients(data, executor)
    first = network.train(network.init(0), None, Plan(epochs=1, seed=0, round=0))
    plan = resting(shuffled(data, 4, epochs=1, steps=None, seed=0, round=1), 1)
    pull = Pull(network.init(9), torch.ones(3, dtype=torch.float64))
    second = network.follow(first.params, first.optimizer_state, plan, Plan(epochs=1, seed=0, round=1, pull=pull))
    for before, after in zip(first[:2], second[:2], strict=True):
        for name in before:
            assert after[name][1].equal(before[name][1])
            assert not after[name][0].equal(before[name][0])
    assert second.loss.isnan().tolist() == [False, True, False]


@either
def test_to_advance_is_to_train_in_place(executor: str) -> None:
    network = clients(federation(EQUAL), executor)
    running, start = network._executors.running, distinct(network)
    given = {name: value.clone() for name, value in start.items()}
    rest = {}, network.inputs, network.batches(Plan(epochs=1)), None, ()
    trained, state, losses = running.train(start, *rest)
    assert_same(start, given)
    advanced = running.advance(start, *rest)
    assert_same(start, trained)
    assert not start["1.weight"].equal(given["1.weight"])
    assert_same(advanced[0], state)
    assert advanced[1].equal(losses)


@either
def test_dropout_is_reproducible_differs_between_clients_and_is_off_in_evaluation(executor: str) -> None:
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 40), nn.Dropout(0.5), nn.Linear(40, 3))

    data = federation((4, 4))
    noisy = clients(data, executor, network=network, optimizer=partial(torch.optim.SGD, lr=0.1))

    def run(seed: int, round: int) -> Params:
        plan = shuffled(data, 4, epochs=1, steps=1, seed=0, round=0)
        same = plan.each(lambda field: field[:1].expand(2, *field.shape[1:]))
        return noisy.follow(noisy.init(0), None, same, Plan(epochs=1, seed=seed, round=round)).params

    first = run(0, 0)
    torch.manual_seed(123)
    assert_same(run(0, 0), first)
    assert not run(1, 0)["0.weight"].equal(first["0.weight"])
    assert not run(0, 1)["0.weight"].equal(first["0.weight"])
    assert not first["0.weight"][0].equal(first["0.weight"][1])
    assert noisy.evaluate(first).loss.equal(noisy.evaluate(first).loss)


@either
def test_frozen_and_tied_parameters_stay_so(executor: str) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.a, self.b, self.out = (nn.Linear(*s) for s in ((5, 5), (5, 5), (5, 5), (5, 3)))
            self.b.weight = self.a.weight
            self.frozen.requires_grad_(False)
            self.unused = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.b(self.a(self.frozen(x)).relu()))

    network = clients(federation(), executor, network=Tied)
    params = network.init(0)
    assert not {"b.weight", "frozen.weight", "frozen.bias"} & params.keys()
    body = {name: value.clone() for name, value in network.frozen.items()}
    trained = network.train(params, None, Plan(epochs=1, seed=0, round=0))
    assert_same(network.frozen, body)
    assert trained.params["unused"].equal(params["unused"])
    assert not trained.params["a.weight"].equal(params["a.weight"])
    other = clients(federation(), "loop" if executor == "stacked" else "stacked", network=Tied)
    assert_agree(other.train(params, None, Plan(epochs=1, seed=0, round=0)), trained)


class Watched(nn.Linear):
    seen: ClassVar[set[tuple[int, int]]] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add((threading.get_ident(), torch.get_num_threads()))
        return super().forward(x)


def distinct_start(network: Clients) -> Params:
    random = torch.Generator().manual_seed(0)
    return {name: value + torch.rand(value.shape, generator=random) for name, value in network.init(0).items()}


@either
def test_threads_change_no_result_and_their_number_is_restored(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.train.executors.loop._SMALL", 0)  # small networks have one worker

    def run() -> tuple[Params, Tensor, Tensor]:
        network = clients(federation(), executor, network=lambda: Watched(5, 3))
        Watched.seen.clear()
        trained = network.train(distinct_start(network), None, Plan(epochs=2, seed=0, round=0))
        with torch.no_grad():
            losses = network.pair_loss(trained.params, Peers.everybody(4), network.probe(0, 0))
        return trained.params, trained.loss, losses

    serial = run()
    torch.set_num_threads(3)
    parallel = run()
    assert torch.get_num_threads() == 3
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 3
    assert {threads for _, threads in Watched.seen} == {1}
    assert (threading.get_ident() in {thread for thread, _ in Watched.seen}) == (executor == "stacked")
    assert_same(serial[0], parallel[0])
    assert serial[1].equal(parallel[1])
    assert serial[2].equal(parallel[2])


@either
def test_neither_changes_what_it_is_given(executor: str) -> None:
    network = clients(federation(EQUAL), executor)
    params = distinct(network)
    first = network.train(params, None, Plan())
    copies = [{name: value.clone() for name, value in given.items()} for given in (first.params, first.optimizer_state)]
    network.train(first.params, first.optimizer_state, Plan(round=1))
    assert_same(first.params, copies[0])
    assert_same(first.optimizer_state, copies[1])


@either
def test_a_mixture_of_classifiers_averages_probabilities(executor: str) -> None:
    network = clients(federation(), executor)
    params = distinct(network)
    network.evaluate(params)
    running = network._executors.running
    inputs = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    peers = Peers(
        torch.tensor([[True, True], [True, False], [True, True], [False, False]]),
        torch.tensor([[1, 3], [0, 2], [3, 2], [0, 1]]),
    )
    weights = torch.tensor([[1.0, 3.0], [2.0, 5.0], [0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    found = mixed(running, params, inputs, weights, peers)
    # Masked candidates do not count, and whoever is left without any weight predicts alone.
    shares = [{1: 0.25, 3: 0.75}, {0: 1.0}, {2: 1.0}, {3: 1.0}]
    for i, share in enumerate(shares):
        each = [part * module_of(params, j)(inputs[i]).softmax(-1) for j, part in share.items()]
        torch.testing.assert_close(found[i].exp(), torch.stack(each).sum(0).detach())


def test_candidates_that_nobody_uses_are_left_out() -> None:
    network = clients(federation())
    broken = {name: value.index_fill(0, torch.tensor([2]), torch.nan) for name, value in distinct(network).items()}
    weights = torch.ones(4, 4, dtype=torch.float64).fill_diagonal_(0)
    weights[:, 2] = weights[2] = 0
    weights[2, 0] = 1
    found = mixed(network._executors.running, broken, torch.ones(4, 3, 5).double(), weights, Peers.everybody(4))
    assert found.isfinite().all()


def test_who_has_optimizer_state_is_noted_only_while_somebody_has_none() -> None:
    buffers = {"momentum_buffer/weight": torch.ones(3, 2)}
    assert who_started({}, 3).tolist() == [False] * 3
    assert who_started(buffers, 3).tolist() == [True] * 3
    some = torch.tensor([True, False, True])
    noted = with_started(buffers, some)
    assert who_started(noted, 3).equal(some)
    assert set(noted) == {"momentum_buffer/weight", "started"}
    assert with_started(buffers, torch.ones(3, dtype=torch.bool)) == buffers
    assert with_started({}, some) == {}
