"""The workbench: a model is fitted on clients that all models share, and summed up against local-only training."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from scool_ppl import load_federation
from scool_ppl.base.files import file_sha256
from scool_ppl.deploy import gains
from scool_ppl.runs.folder import Run
from scool_ppl.workbench.workbench import Result, Workbench
from scool_ppl.zoo.load import model_path
from tests.helpers.results import BRIEF, SPEC


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return Workbench(load_federation(SPEC), BRIEF, progress=False)


@pytest.fixture(scope="module")
def ring(bench: Workbench, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """A fit of ring into a folder, against local-only training."""
    folder = tmp_path_factory.mktemp("bench") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scool_ppl.runs.folder.Run.draw", lambda run: [])
        return bench.fit("ring", run=folder, baseline=True), folder


def test_clients_and_local_only_training_are_made_once(bench: Workbench) -> None:
    assert bench.local is bench.local
    assert bench.clients is bench.clients
    assert bench.em("ring").clients is bench.em("fedavg").clients


def test_the_summary_is_the_last_row_with_gain_and_harm(bench: Workbench, ring: tuple[Result, Path]) -> None:
    result, _ = ring
    last = {key: value for key, value in result.fit.history[-1].items() if key != "round"}
    assert {key: result.summary[key] for key in last} == last
    assert (result.name, result.summary["model"], result.summary["federation"]) == ("ring", "ring", SPEC)
    assert result.local is bench.local.evaluation
    mine, alone = (evaluation.score.double() for evaluation in (result.fit.evaluation, result.local))
    assert result.summary["gain_over_local"] == pytest.approx(float((mine - alone).mean()))
    assert result.summary["below_local"] == float((mine < alone).double().mean())
    for verb, spent in result.summary["total_seconds"].items():
        assert spent == pytest.approx(sum(row["seconds"][verb] for row in result.fit.history))


def test_the_folder_says_what_was_asked(bench: Workbench, ring: tuple[Result, Path]) -> None:
    result, folder = ring
    asked = json.loads((folder / "run.json").read_text())
    assert (asked["model"], asked["federation"], asked["baseline"]) == ("ring", SPEC, True)
    assert asked["model_sha256"] == file_sha256(model_path("ring"))
    assert asked["settings"]["rounds"] == BRIEF.rounds
    assert json.loads((folder / "summary.json").read_text()) == result.summary


def test_local_only_training_as_its_own_baseline_is_not_done_twice(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = bench.local
    monkeypatch.setattr("scool_ppl.em.EM.fit", lambda *_, **__: pytest.fail("trained again"))
    result = bench.fit("local", baseline=True)
    assert result.fit is local
    assert (result.summary["gain_over_local"], result.summary["below_local"]) == (0, 0)


def test_the_name_has_the_hyperparameters_and_without_a_baseline_there_is_no_gain(bench: Workbench) -> None:
    result = bench.fit("fedavg", {"clip": 1.0})
    assert result.name == "fedavg clip=1.0"
    assert repr(result).startswith("Result(fedavg clip=1.0, Fit(")
    assert len(repr(result)) < 200
    assert result._repr_html_() == result.fit._repr_html_()
    assert result.summary["hyperparameters"] == {"clip": 1.0}
    assert result.local is None
    assert "gain_over_local" not in result.summary
    assert torch.isfinite(result.fit.evaluation.score).all()


AGAINST = ("gain_over_local", "below_local", "harmed")


def rows_of(folder: Path) -> list[dict[str, str]]:
    """The table of clients."""
    return list(csv.DictReader((folder / "clients.csv").read_text().splitlines()))


@pytest.fixture(scope="module")
def stacked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workbench, Result, Path]:
    """A fit of ring into a folder that deploys a stack of it and local-only training."""
    bench = Workbench(load_federation(SPEC), replace(BRIEF, deploy="stack"), progress=False)
    folder = tmp_path_factory.mktemp("stacked") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scool_ppl.runs.folder.Run.draw", lambda run: [])
        return bench, bench.fit("ring", run=folder, baseline=True), folder


def test_the_track_of_local_training_is_the_baseline(bench: Workbench, stacked: tuple[Workbench, Result, Path]) -> None:
    own, result, folder = stacked
    alone = bench.local
    assert result.local is not None
    assert torch.equal(result.local.score, alone.evaluation.score)
    assert torch.equal(result.local.loss, alone.evaluation.loss)
    rows = rows_of(folder)
    assert [float(row["accuracy_local"]) for row in rows] == alone.evaluation.score.tolist()
    assert "local" not in own._made, "it is not trained again, though a baseline was asked for"
    without = own.fit("ring")
    assert {name: without.summary[name] for name in AGAINST} == {name: result.summary[name] for name in AGAINST}


def test_gain_and_harm_are_those_of_what_is_deployed(bench: Workbench, stacked: tuple[Workbench, Result, Path]) -> None:
    own, result, _ = stacked
    deployed, alone = result.fit.deployed.score.double(), bench.local.evaluation.score.double()
    assert result.summary["gain_over_local"] == pytest.approx(float((deployed - alone).mean()))
    assert result.summary["below_local"] == float((deployed < alone).double().mean())
    found = gains(own.clients, result.fit.deployment.ensemble, bench.local.state.params)
    beyond = [gain < -2 * error - 1e-9 for gain, error in zip(found.gain.tolist(), found.error.tolist(), strict=True)]
    assert result.summary["harmed"] == sum(beyond) / len(beyond)


def test_the_accuracy_of_a_fit_is_that_of_what_is_deployed(
    bench: Workbench, ring: tuple[Result, Path], stacked: tuple[Workbench, Result, Path]
) -> None:
    own, result, folder = stacked
    summary, plain = result.summary, ring[0].summary
    evaluation = own.clients.evaluate(result.fit.deployment.ensemble)
    assert summary["accuracy"]["mean"] == pytest.approx(float(evaluation.score.mean()))
    assert summary["task_accuracy"]["mean"] == pytest.approx(float(evaluation.task_score.mean()))
    assert summary["accuracy"]["mean"] != plain["accuracy"]["mean"], "otherwise this test could not fail"
    for mine, its in (("accuracy_mixed", "accuracy"), *((name, name) for name in ("accuracy_trained", "elbo", "loss"))):
        assert summary[mine] == plain[its], "the track that is shown is the model on its own"
    assert json.loads((folder / "summary.json").read_text()) == summary


def test_the_summary_tells_what_clients_rely_on(stacked: tuple[Workbench, Result, Path]) -> None:
    _, result, folder = stacked
    relied = result.summary["relies_on"]
    assert list(relied) == ["local", "ring", "ring, tuned"]
    assert sum(relied.values()) == pytest.approx(1)
    rows = rows_of(folder)
    for name, share in relied.items():
        assert share == pytest.approx(sum(float(row[f"relies on {name}"]) for row in rows) / len(rows))
    assert all(sum(float(row[f"relies on {name}"]) for name in relied) == pytest.approx(1) for row in rows)


def test_what_is_deployed_is_in_the_folder(
    bench: Workbench, ring: tuple[Result, Path], stacked: tuple[Workbench, Result, Path]
) -> None:
    _, result, folder = stacked
    for fitted, path in ((result, folder), ring):
        found = Run.open(path).deployment.evaluate(bench.clients)
        assert torch.equal(found.score, fitted.fit.deployed.score)
        assert found.loss.tolist() == pytest.approx(fitted.fit.deployed.loss.tolist())
    assert Run.open(folder).deployment.candidates == ("local", "ring", "ring, tuned")


def test_one_model_on_its_own_relies_on_itself(ring: tuple[Result, Path]) -> None:
    result, folder = ring
    assert not {"relies_on", "accuracy_mixed"} & set(result.summary)
    assert "relies on" not in (folder / "clients.csv").read_text()
    assert Run.open(folder).deployment.candidates == ("mixed",)
