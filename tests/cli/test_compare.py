"""`scool compare` prints and writes one comparison, refuses early, and goes on with one that was stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scool_ppl.workbench.workbench import Workbench
from tests.helpers.command import TINY, refused, scool


def test_compare_writes_a_table_and_a_figure(tmp_path: Path) -> None:
    answer = scool("compare", "local", "ring", *TINY, "--seeds=2", "--out", tmp_path / "both")
    assert answer.code == 0, answer.err
    written = json.loads((tmp_path / "both" / "comparison.json").read_text())
    assert [row["model"] for row in written["table"]] == ["local", "ring"]
    assert [[run["seed"] for run in seed] for seed in written["runs"]] == [[0, 0], [1, 1]]
    assert written["table"][0]["gain over local"] == {"mean": 0.0, "std": 0.0}
    assert (tmp_path / "both" / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert "ring" in answer.out
    assert f"{written['table'][1]['accuracy']['mean']:.3f}" in answer.out


def test_compare_counts_seeds_of_the_federation_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    answer = scool("compare", "local", *TINY, "--seed=5", "--federation-seed=3", "--seeds=2", "--out", out)
    assert answer.code == 0, answer.err
    asked = json.loads((out / "run.json").read_text())
    assert (asked["seeds"], asked["networks_seed"]) == ([3, 4], 5)
    written = json.loads((out / "comparison.json").read_text())
    assert [[run["seed"] for run in seed] for seed in written["runs"]] == [[3], [4]]


def test_compare_refuses_before_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in the way, or a model that cannot be built, is found before minutes of training, not after."""
    monkeypatch.setattr("scool_ppl.em.EM.fit", lambda *_, **__: pytest.fail("trained"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    assert "not empty" in refused("compare", "local", "ring", *TINY, "--out=full")
    dirichlet = "--federation=dirichlet:digits:clients=4"
    assert "needs truth" in refused("compare", "local", "oracle", *TINY, dirichlet)
    assert (tmp_path / "full" / "notes.txt").read_text() == "mine"


def test_an_interrupted_comparison_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:

        def stop(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(Workbench, "fit", stop)
        assert "with --out runs/compare goes on" in refused("compare", "local", *TINY, code=130)
    assert scool("compare", "local", *TINY, "--out=runs/compare").code == 0
    line = refused("compare", "ring", *TINY, "--out=runs/compare")
    assert "holds a comparison with the comparison local, asked for were ring" in line
    assert scool("compare", "ring", *TINY, "--out=runs/compare", "--overwrite").code == 0
