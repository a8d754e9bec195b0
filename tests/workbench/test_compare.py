"""Several models compared: they meet the same clients, are named apart, and are written as tables and a figure."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.image
import pytest
import torch

from scool_ppl import InputError, load_federation, load_model
from scool_ppl.workbench.compare import compare, labels, save_comparison
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.tables import comparison
from scool_ppl.workbench.workbench import Result
from tests.helpers.results import BRIEF, SPEC
from tests.helpers.small import brief


@pytest.fixture(scope="module")
def results() -> list[list[Result]]:
    """ring and local for two seeds."""
    return compare(
        [("local", {}), ("ring", {})], lambda seed: load_federation(SPEC, seed=seed), BRIEF, [3, 4], progress=False
    )


def test_models_meet_the_same_clients_initialisation_and_batches(results: list[list[Result]]) -> None:
    for seed, (local, ring) in zip((3, 4), results, strict=True):
        assert (local.summary["seed"], ring.summary["seed"]) == (seed, seed)
        first = [fitted.fit.history[0] for fitted in (local, ring)]
        assert first[0]["loss"] == first[1]["loss"]
        assert first[0]["accuracy_trained"] == first[1]["accuracy_trained"], "before mixing all is the same"
        assert local.local is not None
        assert torch.equal(local.local.score, local.fit.evaluation.score), "the baseline is the model `local`"
        assert (local.summary["gain_over_local"], local.summary["below_local"]) == (0, 0)
    assert results[0][0].fit.history[0]["loss"] != results[1][0].fit.history[0]["loss"]


def test_a_comparison_is_written_as_table_runs_and_figure(results: list[list[Result]], tmp_path: Path) -> None:
    rows = save_comparison(results, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "run.json",
        "comparison.json",
        "comparison.md",
        "comparison.png",
    }
    written = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert written["table"] == rows == comparison(results)
    assert [[run["model"] for run in seed] for seed in written["runs"]] == [["local", "ring"]] * 2
    assert "torch" in written["versions"]
    assert matplotlib.image.imread(tmp_path / "out" / "comparison.png").std() > 0
    table = (tmp_path / "out" / "comparison.md").read_text().splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in table] == ["model", "---", "local", "ring"]
    with pytest.raises(InputError, match="not empty"):
        save_comparison(results, tmp_path / "out")


def test_one_model_with_other_hyperparameters_is_another_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.workbench.settings.load_model", lambda *a, **b: brief(load_model(*a, **b)))
    models = [("scool_sbm", {"blocks": 3}), ("scool_sbm", {"blocks": 5, "n_eff": 2.0}), ("local", {}), ("ring", {})]
    assert labels(models) == ["scool_sbm blocks=3", "scool_sbm blocks=5 n_eff=2.0", "local", "ring"]
    assert labels([("a/mine.py", {}), ("scool_sbm", {"blocks": 3})]) == ["mine", "scool_sbm"]
    with pytest.raises(InputError, match="scool_sbm blocks=3 was given twice"):
        labels([models[0], models[0]])
    (both,) = compare(
        [("scool_sbm", {"blocks": 2}), ("scool_sbm", {"blocks": 3})],
        lambda seed: load_federation(SPEC, seed=seed),
        Settings(rounds=1, warmup_epochs=1, executor="stacked"),
        [0],
        progress=False,
    )
    assert [fitted.name for fitted in both] == ["scool_sbm blocks=2", "scool_sbm blocks=3"]
    assert [row["model"] for row in comparison([both])] == [fitted.name for fitted in both]
