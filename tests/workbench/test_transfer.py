"""A run's model on clients that it has never seen, with what it has learned and without."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from scool_ppl import Federation, load_federation
from scool_ppl.runs import checkpoints
from scool_ppl.workbench import Arm, Outcome, Settings, Workbench, compare, transfer
from tests.helpers.refusals import refuses
from tests.helpers.runs import finished, timeless
from tests.helpers.states import same_bits

SETTINGS = Settings(rounds=2, warmup_epochs=20, local_epochs=1, executor="stacked")
OLD, NEW = (f"permuted:digits:clients={clients},groups=2,train=30,test=20" for clients in (5, 4))


def others(seed: int) -> Federation:
    return load_federation(NEW, seed=seed)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned: B and alpha of a block model."""
    folder = tmp_path_factory.mktemp("runs") / "sbm"
    bench = Workbench(load_federation(OLD), SETTINGS, progress=False)
    bench.fit("scool_sbm", {"blocks": 2}, run=folder)
    return folder


def transferred(run: Path, make: Callable[[int], Federation] = others, **options: Any) -> list[list[Outcome]]:
    return transfer(run, make, **{"seeds": [3], "progress": False, **options})


def test_from_scratch_is_a_plain_fit_bit_for_bit(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, results = Workbench.fit, []

    def fit(bench: Workbench, *rest: Any, **options: Any) -> Any:
        results.append(real(bench, *rest, **options))
        return results[-1]

    monkeypatch.setattr(Workbench, "fit", fit)
    ((scratch, _),) = transferred(run, rounds=1, freeze=True)
    plain = real(
        Workbench(others(3), Settings(**{**asdict(SETTINGS), "rounds": 1, "seed": 3}), progress=False),
        "scool_sbm",
        {"blocks": 2},
    )
    same_bits(results[0].fit.state, plain.fit.state)
    assert timeless(scratch.history) == timeless(plain.fit.history)
    state, learned = results[1].fit.state, checkpoints.newest(run)
    assert learned is not None
    for name, value in learned.state.prior.items():
        assert torch.equal(state.prior[name], value), "frozen"
    assert not torch.equal(plain.fit.state.prior["alpha_unconstrained"], learned.state.prior["alpha_unconstrained"])


def test_both_are_compared_and_kept(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    results = transferred(run, seeds=[3, 4], out=folder)
    assert [[outcome.name for outcome in seed] for seed in results] == [["scool_sbm", "scool_sbm transferred"]] * 2
    for scratch, learned in results:
        assert scratch.history[0]["loss"] == learned.history[0]["loss"], "the same networks and batches"
        assert scratch.history[0]["elbo"] != learned.history[0]["elbo"]
    asked = json.loads((folder / "run.json").read_text())
    assert asked["models"][1]["learned"]["frozen"] is False
    assert asked["settings"]["rounds"] == 2
    lines = (folder / "rounds.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 2 * 2
    monkeypatch.setattr(Workbench, "fit", lambda *_, **__: pytest.fail("trained"))
    transferred(run, seeds=[3, 4], out=folder)
    refuses(lambda: transferred(run, seeds=[3, 4], out=folder, freeze=True), "frozen")


def test_values_of_a_fit_in_python_are_compared_as_any_model(tmp_path: Path) -> None:
    from scool_ppl.em import Learned

    state = Workbench(load_federation(OLD), SETTINGS, progress=False).fit("scool_sbm", {"blocks": 2}).fit.state
    arms = [("local", {}), Arm("scool_sbm", {"blocks": 2}, Learned.of(state, "mine", frozen=True))]
    ((_, frozen),) = compare(arms, others, SETTINGS, [3], progress=False)
    assert frozen.name == "scool_sbm frozen"
    assert len(frozen.history) == 2


def test_what_has_learned_nothing_is_refused_before_anybody_trains(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scool_ppl.em.EM.fit", lambda *_, **__: pytest.fail("trained"))
    refuses(lambda: transferred(run, lambda seed: load_federation(OLD, seed=seed), seeds=[0]), "expected other clients")
    same = "permuted:digits:test=20,train=30,groups=2,clients=5"
    refuses(lambda: transferred(run, lambda seed: load_federation(same, seed=0)), "expected other clients")
    refuses(lambda: transferred(run, choices={"blocks": 3}), "take the same hyperparameters")
    refuses(lambda: transferred(finished(tmp_path / "em", 1).path), "not that of a `scool fit`")
    for checkpoint in (run / "checkpoints").glob("round-00000[12]"):
        checkpoint.rename(tmp_path / checkpoint.name)
    try:
        refuses(lambda: transferred(run), "has no round yet")
    finally:
        for checkpoint in tmp_path.glob("round-*"):
            checkpoint.rename(run / "checkpoints" / checkpoint.name)
    refuses(lambda: Workbench(others(3), SETTINGS).fit("local", {}, object(), run=tmp_path / "x"), "learned= and run=")  # type: ignore[arg-type]
