"""Which executor runs the clients: what is possible, what was asked for, and what is faster."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from scool_ppl.errors import InputError
from scool_ppl.train.contract import Plan
from scool_ppl.train.executors import choosing
from tests.helpers.unequal import ADAM, assert_agree, both, clients, federation


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


def test_unequal_numbers_of_batches_take_the_loop_where_steps_are_counted_per_tensor() -> None:
    auto, loop = (clients(federation(), executor, optimizer=ADAM) for executor in ("auto", "loop"))
    assert_agree(*(e.train(e.init(0), None, Plan(epochs=1, seed=0, round=0)) for e in (auto, loop)))
    assert auto.executor_name == "loop"


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


def test_the_faster_is_taken_after_a_warm_up_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "_MEASURED", {})
    monkeypatch.setenv("SCOOL_CACHE", str(tmp_path))
    calls: list[str] = []
    clock = 0.0

    def run(name: str, first: float, then: float) -> None:
        nonlocal clock
        clock += then if name in calls else first
        calls.append(name)

    monkeypatch.setattr(time, "perf_counter", lambda: clock)
    slow_at_first = {"a": lambda: run("a", 9.0, 1.0), "b": lambda: run("b", 2.0, 2.0)}
    assert choosing.fastest("case", slow_at_first) == "a"
    assert calls == ["a", "a", "b", "b"]
    assert choosing.fastest("case", {"b": lambda: run("b", 0.0, 0.0), "a": lambda: run("a", 9.0, 9.0)}) == "a"
    assert len(calls) == 4
    assert choosing.fastest("another", {"a": lambda: run("a", 1.0, 1.0), "b": lambda: run("b", 0.0, 0.0)}) == "b"


def test_networks_with_noise_are_stacked_without_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    def noisy() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5))

    monkeypatch.setattr(choosing, "fastest", lambda *_: pytest.fail("nothing is measured"))
    assert clients(federation(), "auto", network=noisy).executor_name == "stacked"
    # Adam with unequal numbers of batches cannot be stacked, noise or not.
    late = clients(federation(), "auto", network=noisy, optimizer=ADAM)
    late.train(late.init(0), None, Plan())
    assert late.executor_name == "loop"


def test_what_an_earlier_run_used_is_used_where_nothing_else_was_asked_for() -> None:
    auto = clients(federation(), "auto")
    auto.use_executor("auto")
    assert auto.executor_name == "auto"
    auto.use_executor("loop")
    auto.evaluate(auto.init(0))
    assert auto.executor_name == "loop"
    asked_for = clients(federation(), "stacked")
    with pytest.warns(UserWarning, match="the run used the executor 'loop', these clients use 'stacked'"):
        asked_for.use_executor("loop")
    assert asked_for.executor_name == "stacked"
    asked_for.use_executor("stacked")  # as it is, so without a warning
    asked_for.use_executor("auto")  # a run that had not chosen yet
    with pytest.warns(UserWarning, match="clients run one by one"):
        coupled = clients(federation(), "auto", optimizer=ByNorm)
    with pytest.warns(UserWarning, match="the run used the executor 'stacked', these clients use 'loop'"):
        coupled.use_executor("stacked")
    assert coupled.executor_name == "loop"
    with pytest.raises(InputError, match="did you mean 'stacked'"):
        auto.use_executor("stack")


def test_clients_of_another_federation_choose_for_themselves() -> None:
    here = clients(federation(), "auto")
    there = here.for_federation(federation().select([0, 1]))
    there.use_executor("loop")
    assert (here.executor_name, there.executor_name) == ("auto", "loop")
