"""The workbench: a model is fitted on clients that all models share, and summed up against local-only training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from scool_ppl import load_federation
from scool_ppl.base.files import file_sha256
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
    assert result.summary["harmed"] == float((mine < alone).double().mean())
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
    assert (result.summary["gain_over_local"], result.summary["harmed"]) == (0, 0)


def test_the_name_has_the_hyperparameters_and_without_a_baseline_there_is_no_gain(bench: Workbench) -> None:
    result = bench.fit("fedavg", {"clip": 1.0})
    assert result.name == "fedavg clip=1.0"
    assert result.summary["hyperparameters"] == {"clip": 1.0}
    assert result.local is None
    assert "gain_over_local" not in result.summary
    assert torch.isfinite(result.fit.evaluation.score).all()
