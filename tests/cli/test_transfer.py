"""`scool transfer` prints both fits round by round, and says in one line what cannot be transferred."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from tests.helpers.command import fit, refused, scool

OTHERS = "--federation=permuted:digits:clients=5,groups=2,train=20,test=20"


def test_transfer_prints_and_writes_both(tmp_path: Path) -> None:
    fit(tmp_path / "run", "scool_sbm", "blocks=2")
    asked = (
        "transfer",
        tmp_path / "run",
        OTHERS,
        "--seed=4",
        "--seeds=2",
        "--freeze",
        "--quiet",
        "--out",
        tmp_path / "out",
    )
    answer = scool(*asked)
    assert answer.code == 0, answer.err
    with (tmp_path / "out" / "rounds.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert {line["model"] for line in lines} == {"scool_sbm", "scool_sbm frozen"}
    assert {line["seed"] for line in lines} == {"4", "5"}
    first = [float(line["accuracy"]) for line in lines if (line["model"], line["round"]) == ("scool_sbm frozen", "1")]
    assert f"{sum(first) / 2:.3f}" in answer.out
    assert "after round" in answer.out
    assert (tmp_path / "out" / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert "expected a whole number of at least 1" in refused("transfer", tmp_path / "run", OTHERS, "--seeds=0")
    assert "hyperparameter of scool_sbm 'block'" in refused("transfer", tmp_path / "run", "block=3", OTHERS)


def test_seeds_of_the_federation_alone(tmp_path: Path) -> None:
    """Networks begin where those of the run began, under seed 0: so local training of two federations does."""
    fit(tmp_path / "run", "scool_sbm", "blocks=2")
    out = tmp_path / "out"
    answer = scool("transfer", tmp_path / "run", OTHERS, "--federation-seed=1", "--seeds=2", "--quiet", "--out", out)
    assert answer.code == 0, answer.err
    asked = json.loads((out / "run.json").read_text())
    assert (asked["seeds"], asked["networks_seed"], asked["settings"]["seed"]) == ([1, 2], 0, 0)
    cells = json.loads((out / "cells.json").read_text())
    assert set(cells) == {f"scool_sbm{what} | seed {seed}" for what in ("", " transferred") for seed in (1, 2)}
    assert {cell["request"]["settings"]["seed"] for cell in cells.values()} == {0}
    with (out / "rounds.csv").open() as file:
        assert {line["seed"] for line in csv.DictReader(file)} == {"1", "2"}


def test_a_run_with_nothing_to_transfer_is_told_what_would_have_something(tmp_path: Path) -> None:
    fit(tmp_path / "run", "l2c")
    line = refused("transfer", tmp_path / "run", OTHERS, "--quiet", "--out", tmp_path / "out")
    assert "all that " in line
    assert "the encoder of meta_l2c" in line
    assert not (tmp_path / "out").exists()
