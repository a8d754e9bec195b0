"""Several models compared: they meet the same clients, are named apart, and are written as tables and a figure."""

from __future__ import annotations

import csv
import io
import json
import shutil
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest
import torch

from scool_ppl import InputError, load_federation, load_model
from scool_ppl.workbench.compare import Choice, Outcome, compare, labels
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.tables import comparison
from scool_ppl.workbench.workbench import Workbench
from tests.helpers.results import BRIEF, SPEC
from tests.helpers.small import brief

MODELS: list[Choice] = [("local", {}), ("ring", {})]
TABLES = {f"comparison.{ending}" for ending in ("json", "md", "csv", "tex", "png")}
FILES = {"run.json", "cells.json", "graphs", "clients.csv", "rounds.csv"} | TABLES


def compared(out: Path | None = None, models: list[Choice] = MODELS, **options: Any) -> list[list[Outcome]]:
    """ring and local for two seeds."""
    given: dict[str, Any] = {"settings": BRIEF, "seeds": [3, 4], "progress": False, "out": out, **options}
    return compare(models, lambda seed: load_federation(SPEC, seed=seed), **given)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Outcome]]]:
    """A comparison in one go, and its folder."""
    folder = tmp_path_factory.mktemp("compare") / "whole"
    return folder, compared(folder)


def timeless(value: Any) -> Any:
    """Without what differs between two equal fits."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if "seconds" not in key}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def test_models_meet_the_same_clients_initialisation_and_batches(whole: tuple[Path, list[list[Outcome]]]) -> None:
    for seed, (local, ring) in zip((3, 4), whole[1], strict=True):
        assert (local.summary["seed"], ring.summary["seed"]) == (seed, seed)
        first = [fitted.history[0] for fitted in (local, ring)]
        assert first[0]["loss"] == first[1]["loss"]
        assert first[0]["accuracy_trained"] == first[1]["accuracy_trained"], "before mixing all is the same"
        assert all(isinstance(row["accuracy"], float) for row in local.clients), "numbers, also of a fit that was kept"
        assert all(row["accuracy_local"] == row["accuracy"] for row in local.clients), (
            "the baseline is the model `local`"
        )
        assert (local.summary["gain_over_local"], local.summary["below_local"]) == (0, 0)
    assert whole[1][0][0].history[0]["loss"] != whole[1][1][0].history[0]["loss"]


def test_federations_of_several_seeds_begin_with_the_same_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    real, begun = Workbench.em, []

    def em(bench: Workbench, *rest: Any, **options: Any) -> Any:
        built = real(bench, *rest, **options)
        begun.append((bench.data.fingerprint, built.init().params))
        return built

    monkeypatch.setattr(Workbench, "em", em)
    monkeypatch.setattr(sys.modules["scool_ppl.workbench.compare"], "_one_seed", lambda *_: [])
    compared(models=MODELS[:1], networks_seed=7)
    (first, one), (second, other) = begun
    assert first != second
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert first == load_federation(SPEC, seed=3).fingerprint
    alone = real(Workbench(load_federation(SPEC, seed=3), replace(BRIEF, seed=7), progress=False), "local")
    assert all(torch.equal(value, alone.init().params[name]) for name, value in one.items())


def test_a_comparison_is_written_as_tables_clients_and_figure(whole: tuple[Path, list[list[Outcome]]]) -> None:
    folder, results = whole
    assert {path.name for path in folder.iterdir()} == FILES
    written = json.loads((folder / "comparison.json").read_text())
    assert written["table"] == comparison(results)
    assert [[run["model"] for run in seed] for seed in written["runs"]] == [["local", "ring"]] * 2
    assert "torch" in written["versions"]
    assert matplotlib.image.imread(folder / "comparison.png").std() > 0
    table = (folder / "comparison.md").read_text().splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in table] == ["model", "---", "local", "ring"]
    lines = list(csv.DictReader(io.StringIO((folder / "comparison.csv").read_text())))
    assert [float(line["accuracy"]) for line in lines] == [row["accuracy"]["mean"] for row in written["table"]]
    assert (lines[1]["graph AUC, standard deviation"], lines[0]["seeds"]) != ("", "1")


def test_every_client_of_every_fit_has_a_row(whole: tuple[Path, list[list[Outcome]]]) -> None:
    folder, results = whole
    rows = list(csv.DictReader(io.StringIO((folder / "clients.csv").read_text())))
    assert len({(row["model"], row["seed"], row["client"]) for row in rows}) == len(rows) == 2 * 2 * 4
    ring = [float(row["accuracy"]) for row in rows if (row["model"], row["seed"]) == ("ring", "4")]
    assert statistics.mean(ring) == pytest.approx(results[1][1].summary["accuracy"]["mean"])
    for row in rows:
        gain = float(row["accuracy"]) - float(row["accuracy_local"])
        assert float(row["gain_over_local"]) == pytest.approx(gain, abs=1e-6)


def test_a_comparison_that_was_stopped_goes_on_with_what_is_missing(
    whole: tuple[Path, list[list[Outcome]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, fits = Workbench.fit, []

    def fit(bench: Workbench, model: str, *rest: Any, **options: Any) -> Any:
        if len(fits) == 3:
            raise KeyboardInterrupt
        fits.append((model, bench.settings.seed))
        return real(bench, model, *rest, **options)

    monkeypatch.setattr(Workbench, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        compared(tmp_path / "out")
    assert fits == [("local", 3), ("ring", 3), ("local", 4)]
    assert not (tmp_path / "out" / "comparison.json").exists()
    fits.clear()
    compared(tmp_path / "out")
    assert fits == [("ring", 4)], "the others are kept"
    for name in ("comparison.json", "run.json"):
        found, expected = (json.loads((path / name).read_text()) for path in (tmp_path / "out", whole[0]))
        assert timeless(found) == timeless(expected)
    assert (tmp_path / "out" / "clients.csv").read_text() == (whole[0] / "clients.csv").read_text()
    monkeypatch.setattr(Workbench, "fit", lambda *_, **__: pytest.fail("trained"))
    assert (
        comparison(compared(tmp_path / "out"))
        == json.loads((tmp_path / "out" / "comparison.json").read_text())["table"]
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": replace(BRIEF, rounds=3)}, "settings rounds=2, asked for were rounds=3"),
        ({"seeds": [3]}, "seeds 3, 4, asked for were 3"),
        ({"networks_seed": 0}, "networks_seed None, asked for were 0"),
        ({"models": [("local", {}), ("fedavg", {})]}, "comparison local, ring, asked for were local, fedavg"),
    ],
)
def test_another_request_into_the_folder_is_refused_or_replaces_it(
    whole: tuple[Path, list[list[Outcome]]],
    changes: dict[str, Any],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = shutil.copytree(whole[0], tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(Workbench, "fit", lambda *_, **__: pytest.fail("trained"))
        with pytest.raises(InputError, match=words):
            compared(folder, **changes)
    assert (folder / "cells.json").read_bytes() == (whole[0] / "cells.json").read_bytes()
    if "seeds" in changes:
        compared(folder, overwrite=True, **changes)
        assert len(json.loads((folder / "cells.json").read_text())) == 2


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        compared(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


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
