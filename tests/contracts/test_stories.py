"""The stories of docs/: each page leads from an empty folder to its result, with every step run as it is printed."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from scool_ppl.runs import Run
from tests.helpers.pages import ROOT, run_page, stories

STORIES = {" ".join(page.stem for page in story): story for story in stories()}
ALONE = "install"
LONG = {"torchrun", "comparing-methods", "your-own-prior", "your-own-data what-is-deployed", "privacy"}
"""Stories whose commands begin many processes, or fit many models."""
ELSEWHERE = "silos"
"""It begins servers, for minutes: tests/contracts/test_silos.py goes through it at night."""


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def believed(path: Path) -> set[tuple[str, str]]:
    return {(u, v) for u, v, yes in nx.read_graphml(path).edges(data="believed") if yes}


def own_prior(folder: Path) -> None:
    """Both priors find the valleys, and are compared by accuracy and by the bound."""
    valleys = [[f"client {number}" for number in numbers] for numbers in (range(4), range(4, 8))]
    true = {(u, v) for valley in valleys for u in valley for v in valley if u != v}
    assert believed(folder / "runs/knn/graph.graphml") == true == believed(folder / "runs/nested/graph.graphml")
    assert (folder / "runs/nested/report.html").is_file()
    assert [row["model"] for row in table(folder / "runs/priors/comparison.csv")] == ["local", "knn", "nested"]
    assert list((folder / "runs/choose").glob("*.png"))


def hospitals(folder: Path) -> None:
    """Hospitals of the two kinds are told apart and gain; one answers in its own words, its network goes elsewhere."""
    edges = believed(folder / "runs/hospitals/graph.graphml")
    kind = {f"hospital {number}": number <= 3 for number in range(1, 7)}
    assert {name for edge in edges for name in edge} == set(kind)
    assert all(kind[u] == kind[v] for u, v in edges)
    gains = [float(row["gain_over_local"]) for row in table(folder / "runs/hospitals/clients.csv")]
    assert np.mean(gains) > 0, gains
    died = [row["died"] for row in table(folder / "hospitals" / "hospital 2.csv")]
    answers = [row["prediction"] for row in table(folder / "answers.csv")]
    assert sum(answer == truth for answer, truth in zip(answers, died[:10], strict=True)) >= 8
    assert (folder / "runs/hospitals/report.html").is_file()
    assert list((folder / "onnx").glob("*.onnx"))


def comparing(folder: Path) -> None:
    """The table names every model, the bound and the draws are there."""
    (path,) = (page for page in STORIES["comparing-methods"])
    (files,) = re.findall(r"^\| `comparison.md`.*", path.read_text(), flags=re.MULTILINE)
    assert all((folder / "runs/methods" / name).is_file() for name in re.findall(r"`(\w+\.\w+)`", files.split("|")[1]))
    with np.load(folder / "runs/sbm/posterior/posterior.npz") as draws:
        assert all(np.isfinite(draws[name]).all() for name in draws if draws[name].dtype.kind == "f")


def network_scientist(folder: Path) -> None:
    """The graph goes to Gephi, and one of networkx comes back renamed."""
    assert nx.read_gexf(folder / "runs/mine/graph.gexf").number_of_edges() > 0
    assert "M" in nx.read_graphml(folder / "florence.graphml")


def privacy(folder: Path) -> None:
    """Every client's epsilon is told, in every round more of it; evidence costs, too."""
    last = {}
    for run in ("private", "noised"):
        rows = [json.loads(line) for line in (folder / f"runs/{run}/history.jsonl").read_text().splitlines()]
        spent = [row["epsilon"] for row in rows]
        assert all(0 < before[name] < after[name] for before, after in pairwise(spent) for name in after)
        assert {row["client"]: float(row["epsilon"]) for row in table(folder / f"runs/{run}/clients.csv")} == spent[-1]
        last[run] = spent[-1]
    assert all(last["noised"][name] > epsilon for name, epsilon in last["private"].items())


def torchrun(folder: Path) -> None:
    """Processes come to the bits of one, and so does a run of which one has died."""
    two, fragile, shared = (Run.open(folder / "runs" / name) for name in ("two", "fragile", "shared"))
    assert [row["round"] for row in two.history] == [1, 2, 3, 4, 5]
    assert [row["round"] for row in fragile.history] == [row["round"] for row in shared.history] == [1, 2, 3]
    for one, other, third in zip(two.history, fragile.history, shared.history, strict=False):
        assert third["elbo"] == pytest.approx(one["elbo"], rel=1e-3)
        assert (one["elbo"], one["loss"], one["accuracy"]) == (other["elbo"], other["loss"], other["accuracy"])
    assert len(np.load(folder / "answers.npz").files) > 0


def parts(folder: Path) -> None:
    """Heads at home gain where classes differ, and less is sent; adapters are all that a round of texts moves."""

    def ended(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((folder / "runs" / name / "summary.json").read_text())
        return found

    common, heads, adapters = (ended(name) for name in ("common", "heads", "adapters"))
    assert heads["accuracy"]["mean"] > common["accuracy"]["mean"] + 0.05
    assert heads["bytes"]["received"] < common["bytes"]["received"]
    assert adapters["loss"] < np.log(256), "better than knowing nothing"


def transfer(folder: Path) -> None:
    """What was learned and what was not stand side by side, round by round."""
    rows = table(folder / "runs/transfer/rounds.csv")
    assert {row["model"] for row in rows} == {"meta_l2c", "meta_l2c frozen"}
    assert {(row["seed"], row["round"]) for row in rows} == {("0", "1"), ("0", "2")}


RESULTS: dict[str, Callable[[Path], None]] = {
    "your-own-prior": own_prior,
    "your-own-data what-is-deployed": hospitals,
    "comparing-methods": comparing,
    "network-scientist": network_scientist,
    "parts": parts,
    "privacy": privacy,
    "transfer": transfer,
    "torchrun": torchrun,
}


def test_the_stories_are_there() -> None:
    assert {*RESULTS, ALONE, ELSEWHERE} <= set(STORIES)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.nightly] if name in LONG else [])
        for name in sorted(set(STORIES) - {ALONE, ELSEWHERE})
    ],
)
def test_a_story_ends_well(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if name == "privacy":
        pytest.importorskip("opacus", reason="opacus is not installed")
    if name == "parts":
        pytest.importorskip("peft", reason="peft is not installed")
    for page in STORIES[name]:
        run_page(page, tmp_path)
    assert "scool: " not in capfd.readouterr().err, "nobody is warned"
    RESULTS.get(name, lambda folder: None)(tmp_path)


@pytest.mark.nightly
def test_pip_only(tmp_path: Path) -> None:
    """The page is gone through by another Python, with the wheel that pip has installed and away from the repository."""
    builders = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed, no wheel is built")
    (wheel,) = builders.WheelBuilder(str(ROOT)).build(directory=str(tmp_path / "dist"), versions=["standard"])
    site, folder = tmp_path / "site", tmp_path / "folder"
    options = [
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",
        "--disable-pip-version-check",
        "--target",
        str(site),
    ]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, wheel], check=True)
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    (page,) = STORIES[ALONE]
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.pages", str(page)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"with {site}" in done.stdout, "the wheel's, not the repository's"
    assert "scool: " not in done.stderr
    assert len(believed(folder / "runs/own/graph.graphml")) > 0
    assert (folder / "runs/first/report.html").is_file()
    assert list((folder / "runs/first/exported").glob("*.pt2"))
    assert list((folder / "runs/reproduce").glob("l2c_fig7-smoke.*"))
    run = subprocess.run(
        [site / "bin" / "scool", "--version"], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("scool"), "the command itself"
