"""The stacked and the loop executor give the same results, and refuse the same things."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from scool_ppl.data.federation import Federation
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.batches import Batches, shuffled
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Plan, Pull, Trained
from scool_ppl.train.executors.stacked import optimizer_layout
from scool_ppl.train.networks import CNN
from scool_ppl.train.questions import Params
from tests.helpers.unequal import SGD, assert_same, clients, distinct, federation

ADAM = partial(torch.optim.Adam, lr=0.01)
EQUAL = (9, 9, 9)
OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "momentum": SGD,
    "dampened": partial(torch.optim.SGD, lr=0.1, momentum=0.9, dampening=0.5),
    "nesterov": partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "adam": ADAM,
    "adamw": partial(torch.optim.AdamW, lr=0.01, amsgrad=True),
    "nadam": partial(torch.optim.NAdam, lr=0.01),
    "adagrad": partial(torch.optim.Adagrad, lr=0.1, initial_accumulator_value=0.2),
    "rprop": torch.optim.Rprop,
    "rmsprop": partial(torch.optim.RMSprop, lr=0.01, momentum=0.5),
}


def both(data: Federation, **options: object) -> tuple[Clients, Clients]:
    return clients(data, "stacked", **options), clients(data, "loop", **options)


def assert_agree(a: Trained, b: Trained) -> None:
    assert_same(a.params, b.params, 1e-10)
    assert_same(a.optimizer_state, b.optimizer_state, 1e-10)
    torch.testing.assert_close(a.loss, b.loss, rtol=0, atol=1e-10)


def images(sizes: tuple[int, ...]) -> Federation:
    random = torch.Generator().manual_seed(0)
    rows = torch.arange(sum(sizes)).split(list(sizes))
    return Federation(
        inputs=torch.randn(sum(sizes), 1, 8, 8, generator=random),
        targets=torch.randint(3, (sum(sizes),), generator=random),
        train=rows,
        validation=tuple(row[:0] for row in rows),
        test=tuple(row[:0] for row in rows),
        names=tuple(f"c{i}" for i in range(len(sizes))),
        num_classes=3,
    )


@pytest.mark.parametrize("pulled", [False, True])
def test_executors_agree_with_unequal_clients_momentum_decay_and_pull(pulled: bool) -> None:
    stacked, loop = both(federation())
    params = distinct(stacked)
    pull = Pull(stacked.init(9), torch.tensor([0.3, 0.0, 1.0, 0.1], dtype=torch.float64)) if pulled else None
    results = [e.train(params, None, Plan(epochs=2, seed=0, round=0), pull=pull) for e in (stacked, loop)]
    assert_agree(*results)
    after = [
        e.train(r.params, r.optimizer_state, Plan(epochs=1, seed=0, round=1))
        for e, r in zip((stacked, loop), results, strict=True)
    ]
    assert_agree(*after)
    swapped = [
        e.train(r.params, r.optimizer_state, Plan(epochs=1, seed=0, round=1))
        for e, r in zip((loop, stacked), results, strict=True)
    ]
    assert_agree(swapped[0], after[0])
    assert_agree(swapped[1], after[1])


def test_a_pull_is_the_gradient_of_a_proximal_term() -> None:
    network = clients(federation(), optimizer=partial(torch.optim.SGD, lr=0.1))
    params, centre = distinct(network), network.init(9)
    strength = torch.tensor([0.3, 0.0, 1.0, 0.1], dtype=torch.float64)
    free = network.train(params, None, Plan(epochs=1, steps=1, seed=0, round=0)).params
    pulled = network.train(params, None, Plan(epochs=1, steps=1, seed=0, round=0), pull=Pull(centre, strength)).params
    for name in params:
        leaf = params[name].clone().requires_grad_()
        scale = strength.view(-1, *(1,) * (leaf.dim() - 1))
        (gradient,) = torch.autograd.grad((scale / 2 * (leaf - centre[name]) ** 2).sum(), leaf)
        torch.testing.assert_close(pulled[name], free[name] - 0.1 * gradient, rtol=0, atol=1e-12)


def test_executors_agree_on_a_cnn() -> None:
    data = images((6, 3))
    options = {"network": lambda: CNN(1, 8, 3, width=0.125), "optimizer": SGD}
    stacked, loop = both(data, **options)
    results = [e.train(e.init(0), None, Plan(epochs=2, seed=0, round=0)) for e in (stacked, loop)]
    assert_agree(*results)
    assert_agree(
        *(
            e.train(r.params, r.optimizer_state, Plan(epochs=1, seed=0, round=1))
            for e, r in zip((loop, stacked), results, strict=True)
        )
    )
    evaluations = [e.evaluate(results[0].params, "train") for e in (stacked, loop)]
    torch.testing.assert_close(evaluations[0].loss, evaluations[1].loss, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_executors_agree_for_every_optimizer_over_two_rounds(name: str) -> None:
    results: list[Trained] = []
    for network in both(federation(EQUAL), optimizer=OPTIMIZERS[name]):
        first = network.train(network.init(0), None, Plan(epochs=2, seed=0, round=0))
        results.append(network.train(first.params, first.optimizer_state, Plan(epochs=1, seed=0, round=1)))
    assert_agree(*results)


def test_two_calls_equal_one_long_run_of_the_optimizer() -> None:
    data = federation(EQUAL)
    plan = shuffled(data, 4, epochs=4, steps=None, seed=0, round=0)
    halves = [Batches(*(part.chunk(2, dim=1)[half] for part in plan)) for half in (0, 1)]
    for network in both(data, optimizer=ADAM):
        long = network.follow(network.init(0), None, plan, Plan(epochs=1, seed=0, round=0))
        half = network.follow(network.init(0), None, halves[0], Plan(epochs=1, seed=0, round=0))
        rest = network.follow(half.params, half.optimizer_state, halves[1], Plan(epochs=1, seed=0, round=0))
        assert_same(rest.params, long.params, 1e-12)
        assert_same(rest.optimizer_state, long.optimizer_state, 1e-12)
        assert rest.optimizer_state["step/1.weight"].tolist() == [12, 12, 12]
        fresh = network.follow(half.params, None, halves[1], Plan(epochs=1, seed=0, round=0))
        assert not torch.allclose(fresh.params["1.weight"], long.params["1.weight"])


def without(plan: Batches, client: int, steps: slice) -> Batches:
    weight = plan.weight.clone()
    weight[client, steps] = 0
    return plan._replace(weight=weight)


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_masked_clients_do_not_move_nor_do_their_buffers(executor: str) -> None:
    data = federation(EQUAL)
    network = clients(data, executor)
    first = network.train(network.init(0), None, Plan(epochs=1, seed=0, round=0))
    plan = without(shuffled(data, 4, epochs=1, steps=None, seed=0, round=1), 1, slice(None))
    pull = Pull(network.init(9), torch.ones(3, dtype=torch.float64))
    second = network.follow(first.params, first.optimizer_state, plan, Plan(epochs=1, seed=0, round=1), pull=pull)
    for before, after in zip(first[:2], second[:2], strict=True):
        for name in before:
            assert after[name][1].equal(before[name][1])
            assert not after[name][0].equal(before[name][0])
    assert second.loss.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("name", ["momentum", "dampened", "rprop", "adam"])
def test_a_client_that_joins_late_starts_with_fresh_buffers(name: str) -> None:
    data = federation(EQUAL)
    plan = shuffled(data, 4, epochs=1, steps=None, seed=0, round=0)
    results = []
    for network in both(data, optimizer=OPTIMIZERS[name]):
        gone = without(plan, 1, slice(None))
        absent = network.follow(network.init(0), None, gone, Plan(epochs=1, seed=0, round=0))
        assert absent.optimizer_state["started"].tolist() == [True, False, True]
        alone = network.follow(network.init(0), None, plan, Plan(epochs=1, seed=0, round=0))
        joined = network.follow(absent.params, absent.optimizer_state, plan, Plan(epochs=1, seed=0, round=0))
        assert "started" not in joined.optimizer_state
        assert absent.optimizer_state["started"].tolist() == [True, False, True]
        assert_same(*({k: v[1] for k, v in r.params.items()} for r in (joined, alone)), 1e-12)
        results.append(joined)
    assert_agree(*results)


def test_a_gap_in_the_batches_is_skipped() -> None:
    data = federation(EQUAL)
    plan = without(shuffled(data, 4, epochs=2, steps=None, seed=0, round=0), 1, slice(0, 2))
    stacked, loop = (
        e.follow(e.init(0), None, plan, Plan(epochs=1, seed=0, round=0))
        for e in both(data, optimizer=OPTIMIZERS["dampened"])
    )
    assert_agree(stacked, loop)


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


def test_shared_step_counters_need_equal_numbers_of_batches() -> None:
    stacked, loop = both(federation(), optimizer=ADAM)
    with pytest.raises(InputError, match=r"counts its steps once per tensor.*executor='loop'"):
        stacked.train(stacked.init(0), None, Plan(epochs=1, seed=0, round=0))
    done = loop.train(loop.init(0), None, Plan(epochs=1, seed=0, round=0))
    assert done.optimizer_state["step/1.weight"].tolist() == [4, 1, 2, 8]
    # Counters that differ from before, as after an absence, are advanced group by group.
    assert_agree(
        *(e.train(done.params, done.optimizer_state, Plan(epochs=1, steps=2, seed=0, round=1)) for e in (stacked, loop))
    )
    auto = clients(federation(), "auto", optimizer=ADAM)
    assert_agree(auto.train(auto.init(0), None, Plan(epochs=1, seed=0, round=0)), done)
    assert auto.executor_name == "loop"


def test_what_an_optimizer_keeps_is_found_by_running_it() -> None:
    cpu = torch.device("cpu")
    assert optimizer_layout(SGD, cpu) == (frozenset(), True)
    assert optimizer_layout(ADAM, cpu) == (frozenset({"step"}), True)
    assert optimizer_layout(OPTIMIZERS["nadam"], cpu).counters == {"step", "mu_product"}
    assert not optimizer_layout(partial(torch.optim.Adafactor, lr=0.1), cpu).rowwise
    with pytest.raises(InputError, match="optimiser cannot be used"):
        optimizer_layout(torch.optim.LBFGS, cpu)
    with pytest.raises(InputError, match="optimiser cannot be used"):
        optimizer_layout(partial(torch.optim.SGD, lr=-1.0), cpu)


class ByNorm(torch.optim.Optimizer):
    """Steps along gradient / norm, which couples the rows of a stack."""

    def __init__(self, leaves: object) -> None:
        super().__init__(leaves, {})  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for leaf in self.param_groups[0]["params"]:
            leaf -= 0.1 * leaf.grad / leaf.grad.norm()


def test_an_optimizer_that_couples_rows_is_never_stacked() -> None:
    with pytest.raises(InputError, match=r"rows of a tensor independently.*executor='loop'"):
        clients(federation(), "stacked", optimizer=ByNorm)
    with pytest.warns(UserWarning, match="clients run one by one"):
        assert clients(federation(), "auto", optimizer=ByNorm).executor_name == "loop"


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.out = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cells(x[..., None])[0][:, -1])


def test_networks_that_vmap_cannot_run_take_the_loop() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        network = clients(federation(), "auto", network=Recurrent)
        network.train(network.init(0), None, Plan(epochs=1, seed=0, round=0))
        network.evaluate(network.init(0))
    assert [str(w.message).count("one by one") for w in caught] == [1]
    assert network.executor_name == "loop"
    with pytest.raises(InputError, match="vmap cannot run this network"):
        clients(federation(), "stacked", network=Recurrent)


def test_batch_norm_is_refused() -> None:
    with pytest.raises(InputError, match="use GroupNorm"):
        clients(federation(), "loop", network=lambda: nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)))


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_dropout_is_reproducible_differs_between_clients_and_is_off_in_evaluation(executor: str) -> None:
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 40), nn.Dropout(0.5), nn.Linear(40, 3))

    data = federation((4, 4))
    noisy = clients(data, executor, network=network, optimizer=partial(torch.optim.SGD, lr=0.1))

    def run(seed: int, round: int) -> Params:
        plan = shuffled(data, 4, epochs=1, steps=1, seed=0, round=0)
        same = Batches(*(field[:1].expand(2, *field.shape[1:]) for field in plan))
        return noisy.follow(noisy.init(0), None, same, Plan(epochs=1, seed=seed, round=round)).params

    first = run(0, 0)
    torch.manual_seed(123)
    assert_same(run(0, 0), first)
    assert not run(1, 0)["0.weight"].equal(first["0.weight"])
    assert not run(0, 1)["0.weight"].equal(first["0.weight"])
    assert not first["0.weight"][0].equal(first["0.weight"][1])
    assert noisy.evaluate(first).loss.equal(noisy.evaluate(first).loss)


def test_auto_measures_once_and_agrees_with_both() -> None:
    data = federation()
    auto = clients(data, "auto")
    assert auto.executor_name == "auto"
    trained = auto.train(auto.init(0), None, Plan(epochs=1, seed=0, round=0))
    assert auto.executor_name in ("stacked", "loop")
    chosen = auto.executor_name
    for network in both(data):
        assert_agree(network.train(network.init(0), None, Plan(epochs=1, seed=0, round=0)), trained)
    again = clients(data, "auto")
    again.evaluate(again.init(0))
    assert again.executor_name == chosen


@pytest.mark.parametrize("executor", ["stacked", "loop"])
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
    assert "b.weight" not in params
    trained = network.train(params, None, Plan(epochs=1, seed=0, round=0))
    for name in ("frozen.weight", "frozen.bias", "unused"):
        assert trained.params[name].equal(params[name])
    assert not trained.params["a.weight"].equal(params["a.weight"])
    other = clients(federation(), "loop" if executor == "stacked" else "stacked", network=Tied)
    assert_agree(other.train(params, None, Plan(epochs=1, seed=0, round=0)), trained)


class Watched(nn.Linear):
    seen: ClassVar[set[tuple[int, int]]] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add((threading.get_ident(), torch.get_num_threads()))
        return super().forward(x)


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_threads_change_no_result_and_their_number_is_restored(executor: str) -> None:
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


def distinct_start(network: Clients) -> Params:
    random = torch.Generator().manual_seed(0)
    return {name: value + torch.rand(value.shape, generator=random) for name, value in network.init(0).items()}


def test_an_error_in_a_worker_reaches_the_caller_and_the_next_call_works() -> None:
    torch.set_num_threads(2)
    network = clients(federation(), "loop")
    params = network.init(0)
    plan = shuffled(federation(), 4, epochs=1, steps=None, seed=0, round=0)
    with pytest.raises(IndexError):
        network.follow(params, None, plan._replace(index=plan.index + 10**6), Plan(epochs=1, seed=0, round=0))
    assert network.train(params, None, Plan(epochs=1, seed=0, round=0)).loss.isfinite().all()
    assert torch.get_num_threads() == 2
