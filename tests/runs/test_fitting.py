"""Fitting: the loop over rounds with its rows and callbacks, and a loop that is stopped and goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scool_ppl.base.codec import Row
from scool_ppl.data.federation import Federation
from scool_ppl.em.em import EM
from scool_ppl.em.model import Schedule
from scool_ppl.em.state import EMInfo, EMState
from scool_ppl.errors import InputError
from scool_ppl.plots.history import draw_history
from scool_ppl.runs.folder import Run
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Evaluation, Wrapper
from scool_ppl.train.networks import network_of
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.train.questions import Predictor
from scool_ppl.zoo.load import load_model, model_names
from tests.helpers.models import FEDERATION, SCHEDULE
from tests.helpers.refusals import refuses
from tests.helpers.runs import StoppedHereError, driver, stop_after, timeless
from tests.helpers.small import brief
from tests.helpers.states import identical, same_bits


def spread_by_hand(accuracy: Tensor) -> dict[str, Any]:
    values = sorted(accuracy.tolist())
    mean = sum(values) / len(values)
    deviation = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    return {"mean": pytest.approx(mean), "std": pytest.approx(deviation), "worst10": pytest.approx(values[0])}


def test_history_has_the_rows_of_the_contract() -> None:
    em = driver("scool_sbm")
    clients = em.clients
    seen: list[tuple[EMState, EMInfo, Row]] = []
    result = em.fit(2, progress=False, callbacks=[lambda *round: seen.append(round)])
    assert [row["round"] for row in result.history] == [1, 2]
    spreads = ["accuracy", "accuracy_trained", "task_accuracy"]
    keys = ["round", "elbo", "loss", "score", *spreads, "graph", "bytes", "seconds", "quarantined"]
    parts = {
        "accuracy": {"mean", "std", "worst10"},
        "accuracy_trained": {"mean", "std", "worst10"},
        "task_accuracy": {"mean", "std", "worst10"},
        "graph": {"l1", "auc", "ari"},
        "bytes": {"received", "sent"},
        "seconds": {"train", "look", "infer", "mix"},
        "quarantined": set(),
    }
    for (state, info, row), recorded in zip(seen, result.history, strict=True):
        assert row is recorded
        assert list(row) == keys
        assert {key: set(row[key]) for key in parts} == parts
        assert row["accuracy"] == spread_by_hand(clients.evaluate(state.params).score)
        assert row["accuracy_trained"] == spread_by_hand(clients.evaluate(info.trained).score)
        assert row["task_accuracy"] == spread_by_hand(clients.evaluate(state.params).task_score)
        assert (row["elbo"], row["loss"]) == (info.elbo, info.loss)
        assert all(seconds >= 0 for seconds in row["seconds"].values())
    last = seen[-1][0]
    assert identical(last, result.state)
    assert torch.equal(result.evaluation.score, clients.evaluate(last.params).score)
    assert torch.equal(result.trained.score, clients.evaluate(seen[-1][1].trained).score)
    assert torch.equal(torch.as_tensor(result.graph.accuracy), result.evaluation.score)
    assert last.peers is not None
    assert torch.equal(result.graph.weights, last.moments["Y"].where(last.peers.mask, 0))


class Holidays(Wrapper):
    """Clients of whom one is away every second round; trips to evaluate are counted."""

    trips = 0

    def away(self, round: int) -> Mapping[str, str]:
        return {"client 2": "on holiday"} if round % 2 else {}

    def evaluations(self, predictors: Sequence[Predictor], split: str = "test") -> tuple[Evaluation, ...]:
        self.trips += 1
        return super().evaluations(predictors, split)


def test_who_is_away_by_its_own_account_sits_the_round_out() -> None:
    em = driver("scool_sbm")
    state = em.init()
    for round in range(3):
        state, _ = em.step(state, ["client 2"] if round % 2 else ())
    em.clients = Holidays(em.clients)
    fit = em.fit(3, progress=False)
    same_bits(fit.state, state)
    assert [row["quarantined"] for row in fit.history] == [{}, {"client 2": "on holiday"}, {}]


def test_networks_are_evaluated_as_often_as_asked_both_at_once(tmp_path: Path) -> None:
    whole, em = driver("scool_sbm").fit(5, progress=False), driver("scool_sbm")
    em.clients = counted = Wrapper(Holidays(em.clients))
    counted.away = lambda round: {}  # type: ignore[method-assign]
    fit = em.fit(5, evaluate_every=2, run=tmp_path / "run", progress=False)
    assert counted.clients.trips == 3  # type: ignore[attr-defined]
    same_bits(fit.state, whole.state)
    spreads = ("accuracy", "accuracy_trained", "task_accuracy")
    for row, told in zip(fit.history, whole.history, strict=True):
        for name in spreads:
            evaluated = row["round"] in (2, 4, 5)
            assert row[name] == (told[name] if evaluated else {"mean": None, "std": None, "worst10": None})
        assert row["elbo"] == told["elbo"]
    assert torch.equal(fit.evaluation.score, whole.evaluation.score)
    assert torch.equal(fit.trained.score, whole.trained.score)
    figure: Any = draw_history(Run.open(tmp_path / "run").history)
    assert figure.axes[0].lines[0].get_xdata().tolist() == [2, 4, 5]
    with pytest.raises(InputError, match="evaluate_every"):
        driver().fit(1, evaluate_every=0, progress=False)


def test_a_run_that_stopped_where_nothing_was_evaluated_ends_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    """Networks before mixing are kept by nobody: the round is run again from the checkpoint before it."""
    whole = driver("scool_sbm").fit(3, evaluate_every=2, progress=False)
    stopped = partial(driver("scool_sbm").fit, 5, evaluate_every=2, progress=False, callbacks=[stop_after(3)])
    with pytest.raises(StoppedHereError):
        stopped(run=tmp_path / "run")
    fit = driver("scool_sbm").fit(3, evaluate_every=2, run=tmp_path / "run", resume=True, progress=False)
    same_bits(fit.state, whole.state)
    for found, expected in zip((*fit.trained, *fit.evaluation), (*whole.trained, *whole.evaluation), strict=True):
        assert torch.equal(found, expected)
    assert timeless(fit.history) == timeless(whole.history) == timeless(Run.open(tmp_path / "run").history)
    with pytest.raises(StoppedHereError):
        stopped(run=tmp_path / "short", keep=1)
    again = partial(driver("scool_sbm").fit, resume=True, progress=False, run=tmp_path / "short")
    refuses(lambda: again(3), "was not evaluated, and there is no checkpoint before it to go on from; ask for 4 rounds")
    assert again(4).trained.score.isfinite().all()


def test_a_continued_run_equals_an_uninterrupted_one() -> None:
    make = partial(driver, "scool_sbm", optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9))
    whole, first = make().fit(4, progress=False), make().fit(2, progress=False)
    rest = make().fit(2, state=first.state, progress=False)
    assert identical(rest.state, whole.state)
    assert not identical(first.state.optimizer, whole.state.optimizer)
    assert timeless(first.history + rest.history) == timeless(whole.history)


def test_callbacks_see_every_round_in_the_order_they_were_given() -> None:
    seen: list[tuple[str, int, int]] = []

    def callback(name: str) -> Callable[[EMState, EMInfo, Row], None]:
        return lambda state, info, row: seen.append((name, state.round, row["round"]))

    driver().fit(2, progress=False, callbacks=[callback("a"), callback("b")])
    assert seen == [("a", 1, 1), ("b", 1, 1), ("a", 2, 2), ("b", 2, 2)]


def test_what_the_rounds_came_to_is_shown_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    driver().fit(2, progress=False)
    assert capsys.readouterr() == ("", "")
    driver().fit(2)
    assert "2/2" in capsys.readouterr().err


def made(model: str) -> EM:
    clients = Clients(FEDERATION, executor="stacked", dtype=torch.float64)
    return EM(brief(load_model(model, FEDERATION.num_clients, federation=FEDERATION)), clients, SCHEDULE, seed=1)


@pytest.mark.parametrize("model", model_names())
def test_every_model_goes_on_bit_for_bit(model: str, tmp_path: Path) -> None:
    """Stopped after the first of three rounds, resumed in another EM; and what is read back is what was written."""
    whole = made(model).fit(3, progress=False)
    with pytest.raises(StoppedHereError):
        made(model).fit(3, run=tmp_path / "run", progress=False, callbacks=[stop_after(1)])
    em = made(model)
    state = em.resume(tmp_path / "run")
    same_bits(state, made(model).step(made(model).init())[0])
    rest = em.fit(3, run=tmp_path / "run", resume=True, progress=False)
    same_bits(rest.state, whole.state)
    assert timeless(rest.history) == timeless(whole.history)
    assert [row["round"] for row in Run.open(tmp_path / "run").history] == [1, 2, 3]
    for found, expected in zip(rest.evaluation + rest.trained, whole.evaluation + whole.trained, strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(rest.graph.weights, whole.graph.weights)


@pytest.mark.parametrize("optimizer", [partial(torch.optim.SGD, lr=0.1, momentum=0.9), partial(torch.optim.Adam)])
@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_buffers_of_the_optimiser_go_on(optimizer: Any, executor: str, tmp_path: Path) -> None:
    """Client 0 has fewer batches than the others, so that who has started matters."""
    if executor == "stacked" and optimizer.func is torch.optim.Adam:
        schedule = Schedule(local_steps=1)  # Adam counts steps once per tensor: the stack wants equal numbers
    else:
        schedule = Schedule(local_epochs=1, warmup_epochs=1)
    make = partial(driver, optimizer=optimizer, executor=executor, batch_size=3, schedule=schedule)
    whole = make().fit(4, progress=False)
    make().fit(2, run=tmp_path / "run", progress=False)
    rest = make().fit(4, run=tmp_path / "run", resume=True, progress=False)
    assert rest.state.optimizer
    same_bits(rest.state, whole.state)


def test_resume_begins_where_there_is_nothing_and_ends_where_all_is_done(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = driver().fit(2, run=folder, resume=True, progress=False)
    em = driver()
    em.step = lambda state: pytest.fail("nothing was left to do")  # type: ignore[method-assign]
    again = em.fit(2, run=folder, resume=True, progress=False)
    same_bits(again.state, first.state)
    assert again.history == first.history
    assert torch.equal(again.trained.loss, first.trained.loss)
    assert torch.equal(again.graph.weights, first.graph.weights)
    with pytest.raises(InputError, match="has 2 rounds already, 1 in all"):
        driver().fit(1, run=folder, resume=True, progress=False)
    with pytest.raises(InputError, match="without a folder"):
        driver().fit(1, resume=True, progress=False)
    with pytest.raises(InputError, match="leave state out"):
        driver().fit(3, run=folder, resume=True, state=first.state, progress=False)
    with pytest.raises(InputError, match="not empty"):
        driver().fit(3, run=folder, progress=False)


def test_a_given_state_runs_further_rounds_and_can_be_resumed(tmp_path: Path) -> None:
    whole = driver().fit(5, progress=False)
    state = driver().fit(2, progress=False).state
    with pytest.raises(StoppedHereError):
        driver().fit(3, state=state, run=tmp_path / "run", progress=False, callbacks=[stop_after(4)])
    rest = driver().fit(5, run=tmp_path / "run", resume=True, progress=False)
    same_bits(rest.state, whole.state)
    assert [row["round"] for row in rest.history] == [3, 4, 5]


def test_what_a_callback_raises_is_the_users_own(tmp_path: Path) -> None:
    driver().fit(1, run=tmp_path / "run", progress=False)

    def callback(*_: object) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        driver().fit(2, run=tmp_path / "run", resume=True, progress=False, callbacks=[callback])


def test_an_exploding_loss_is_said_once() -> None:
    """Inputs of size 7 curve the squared error by 49: every step at rate 0.1 overshoots."""
    x = 7 * torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    federation = Federation.from_arrays(x, x[:, 0], torch.arange(60) % 3, task="regression")
    clients = Clients(federation, network_of(federation, "linear"), executor="stacked")
    em = EM(load_model("local", 3), clients, Schedule(1, 2))
    with pytest.warns(UserWarning, match="the training loss of round 1 is .*: lower the learning rate") as warned:
        fit = em.fit(3, progress=False)
    assert len(warned) == 1
    assert fit.history[-1]["loss"] > fit.history[0]["loss"] > 1e3 * federation.task.chance


def test_a_run_knows_where_its_weights_lie(tmp_path: Path) -> None:
    """Of a model with places that are not sure; the ends are in the graph, in the folder and around the weights."""
    fit = driver("latent_space").fit(1, run=(run := Run.create(tmp_path / "run")), progress=False)
    assert fit.graph.low is not None
    assert fit.graph.high is not None
    off = ~torch.eye(4, dtype=torch.bool)
    assert bool((fit.graph.low < fit.graph.weights)[off].all())
    assert bool((fit.graph.weights < fit.graph.high)[off].all())
    run.draw = list  # type: ignore[method-assign]
    run.finish({})
    kept = Run.open(run.path).intervals()
    assert kept is not None
    torch.testing.assert_close(kept[0][off].double(), fit.graph.low[off], rtol=0, atol=1e-6)
    torch.testing.assert_close(kept[1][off].double(), fit.graph.high[off], rtol=0, atol=1e-6)
    assert driver("ring").fit(1, run=tmp_path / "ring", progress=False).graph.low is None


def test_a_private_run_goes_on_bit_for_bit_and_goes_on_counting(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="opacus is not installed")
    make = partial(driver, "fedavg", privacy=Privacy(0.8, 0.5))
    whole = make().fit(3, progress=False)
    with pytest.raises(StoppedHereError):
        make().fit(3, run=tmp_path / "run", progress=False, callbacks=[stop_after(1)])
    rest = make().fit(3, run=tmp_path / "run", resume=True, progress=False)
    assert identical(rest.state, whole.state)
    assert timeless(rest.history) == timeless(whole.history)
    spent = [row["epsilon"] for row in whole.history]
    assert all(0 < spent[0][name] < spent[1][name] < spent[2][name] for name in make().clients.names)
    with pytest.raises(InputError, match=r"privacy noise=0.8, this EM noise=0\.7"):
        driver("fedavg", privacy=Privacy(0.7, 0.5)).fit(3, run=tmp_path / "run", resume=True, progress=False)


def test_a_private_run_whose_evidence_is_not_private_begins_with_a_line() -> None:
    privacy = Privacy(0.0, 1.0)
    with pytest.warns(UserWarning, match=r"evidence is not: loss, .*own images.* of training alone"):
        row = driver("scool_sbm", privacy=privacy).fit(1, progress=False).history[-1]
    assert set(row["epsilon"].values()) == {None}, "without noise there is no bound"
    driver("fedavg", privacy=privacy).fit(1, progress=False)
    with pytest.warns(UserWarning, match=r"image_loss, .*choose what to deploy"):
        driver("hedge", privacy=privacy).fit(1, progress=False)
    noised = Privacy(0.0, 1.0, evidence_noise=0.0, evidence_clip=4.0)
    driver("scool_sbm", privacy=noised).fit(1, progress=False)
    for model, what in {"hedge": "image_loss", "cobo": "alignment", "l2c": "mixed_validation"}.items():
        with pytest.raises(InputError, match=f"{what}.*, expected mean losses of networks"):
            driver(model, privacy=noised)
