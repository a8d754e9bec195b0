"""The stacked executor gives what one client at a time gives, for every optimiser that can be stacked."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from scool_ppl.data.federation import Federation
from scool_ppl.errors import InputError
from scool_ppl.train.batches import shuffled
from scool_ppl.train.contract import Plan, Pull, Trained
from scool_ppl.train.executors.stacked import optimizer_layout
from scool_ppl.train.networks import CNN
from tests.helpers.unequal import (
    ADAM,
    EQUAL,
    SGD,
    assert_agree,
    assert_same,
    both,
    clients,
    distinct,
    federation,
    resting,
)

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
    results = [e.train(params, None, Plan(epochs=2, seed=0, round=0, pull=pull)) for e in (stacked, loop)]
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


@pytest.mark.parametrize("name", ["momentum", "dampened", "rprop", "adam"])
def test_a_client_that_joins_late_starts_with_fresh_buffers(name: str) -> None:
    data = federation(EQUAL)
    plan = shuffled(data, 4, epochs=1, steps=None, seed=0, round=0)
    results = []
    for network in both(data, optimizer=OPTIMIZERS[name]):
        gone = resting(plan, 1)
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
    plan = resting(shuffled(data, 4, epochs=2, steps=None, seed=0, round=0), 1, slice(0, 2))
    stacked, loop = (
        e.follow(e.init(0), None, plan, Plan(epochs=1, seed=0, round=0))
        for e in both(data, optimizer=OPTIMIZERS["dampened"])
    )
    assert_agree(stacked, loop)


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


def test_workers_share_networks_on_common_inputs_in_equal_pieces_of_their_own() -> None:
    torch.set_num_threads(2)
    network = clients(federation((9,) * 11), "stacked")
    stacked, params = network.forward().executor, distinct(network)
    inputs = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seen: list[tuple[int, int, int, bool]] = []

    def then(outputs: Tensor, which: slice) -> Tensor:
        seen.append((which.start, len(outputs), torch.get_num_threads(), outputs.requires_grad))
        return outputs

    with torch.no_grad():
        found = stacked.on_common(params, inputs, then, block=4)
        assert sorted(seen) == [(0, 2, 1, False), (2, 3, 1, False), (5, 3, 1, False), (8, 3, 1, False)]
        seen.clear()
        whole = stacked.on_common(params, inputs, then, block=11)
    assert seen == [(0, 11, 1, False)]
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-14)
    assert torch.get_num_threads() == 2
