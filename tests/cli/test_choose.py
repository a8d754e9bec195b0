"""`scool choose` and `scool posterior`: what they print and write, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scool_ppl.cli.choose import grid
from tests.helpers.command import TINY, fit, refused, scool


def test_a_grid_is_every_combination_of_the_values() -> None:
    assert grid(["blocks=1,2", "scool_mmsbm", "blocks=3", "clip=1,none"]) == [
        ("scool_sbm", {"blocks": 1}),
        ("scool_sbm", {"blocks": 2}),
        ("scool_mmsbm", {"blocks": 3, "clip": 1.0}),
        ("scool_mmsbm", {"blocks": 3, "clip": None}),
    ]


def test_choose_prints_bounds_and_what_they_choose(tmp_path: Path) -> None:
    answer = scool("choose", "blocks=1,2", *TINY, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    best = json.loads((tmp_path / "out" / "choice.json").read_text())["best"]
    assert f"highest bound: {best}" in answer.out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "run.json",
        "choice.json",
        "choice.csv",
        "choice.png",
    }
    assert "not empty" in refused("choose", "blocks=1,2", *TINY, "--out", tmp_path / "out")
    assert "leave it out" in refused("choose", "local", *TINY, "--out", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_posterior_of_a_run_and_of_a_federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.runs.folder.Run.draw", lambda run: [])
    monkeypatch.chdir(tmp_path)
    fit(tmp_path / "run", "blocks", "--no-download", TINY[0].replace("test=20", "test=20,validation=0.25"))
    answer = scool("posterior", "run", "--draws", "20")
    assert answer.code == 0, answer.err
    assert "20 draws of the graph" in answer.out
    assert "all draws are the same graph" in answer.out, "ModeSearch ends at one configuration"
    assert (tmp_path / "run" / "posterior" / "posterior.npz").is_file()
    spec = TINY[0].removeprefix("--federation=")
    answer = scool("posterior", spec, "blocks=2", "--rounds=1", "--draws=20", "--quiet", "--out=here")
    assert answer.code == 0, answer.err
    assert "client 3" in answer.out
    assert {path.name for path in (tmp_path / "here").iterdir()} == {
        f"posterior.{ending}" for ending in ("npz", "json", "csv", "png")
    }
    assert "leave MODEL" in refused("posterior", "run", "--rounds=3")
    assert "'runs/typo' is not a run's folder" in refused("posterior", "runs/typo")
