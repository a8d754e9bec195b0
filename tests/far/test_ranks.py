"""Ranks: processes of torchrun that share the clients, against one process; who dies, and going on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from scool_ppl.far import Ranks, ranks
from scool_ppl.runs import checkpoints
from scool_ppl.runs.folder import Run
from scool_ppl.zoo.load import model_names
from tests.helpers.pages import ROOT
from tests.helpers.ranked import SPEC
from tests.helpers.refusals import refuses
from tests.helpers.states import same_bits

PROGRAM = "tests.helpers.ranked"
FIT = ["fit", "ring", "--federation", SPEC, "--rounds", "4", "--warmup-epochs", "2", "--local-epochs", "1", "--quiet"]
SGD = ["--momentum", "0.9", "--executor", "stacked"]
FEW = ["cobo", "hedge"]
"""In lock step; several tracks, and a deployment. All others are run at night."""


def torchrun(
    *arguments: str | Path, processes: int = 2, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """A module under torchrun, from the root of the repository."""
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(processes),
        *options,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*words, "-m", *map(str, arguments)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
    )


def agrees(models: Sequence[str], folder: Path, processes: int) -> None:
    done = torchrun(PROGRAM, folder / "found.json", *models, processes=processes)
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "found.json").read_text())
    assert "ranks ask for different things, or of networks that differ" in found.pop("differs")
    assert {"client 3"} <= set(found.pop("raised")) < {f"client {i}" for i in range(5)}
    assert found.pop("large"), "a message of 110 MB"
    assert found.pop("traffic") == pytest.approx([1, 1], rel=0.05)
    assert set(found) == set(models)
    assert {model: gap for model, gap in found.items() if gap > 1e-12} == {}


def test_two_ranks_come_to_what_one_process_comes_to(tmp_path: Path) -> None:
    agrees(FEW, tmp_path, 2)


@pytest.mark.nightly
def test_three_ranks_come_to_what_one_process_comes_to_with_every_model(tmp_path: Path) -> None:
    agrees(model_names(), tmp_path, 3)


@pytest.mark.nightly
@pytest.mark.parametrize("more", [(), ("--shard",)], ids=["each holds all networks", "networks shared"])
def test_a_rank_that_dies_is_begun_again_and_nothing_is_lost(tmp_path: Path, more: tuple[str, ...]) -> None:
    words, flag = [*FIT, *SGD, *more, "--out"], tmp_path / "died"
    done = torchrun(PROGRAM, "dies", flag, *words, tmp_path / "twice", options=["--max-restarts", "1"])
    assert done.returncode == 0, done.stderr
    assert flag.exists()
    assert (tmp_path / "began").read_text().split()[0] == "2", "it goes on where it was"
    assert torchrun("scool_ppl", *words, tmp_path / "once").returncode == 0
    twice, once = (checkpoints.newest(tmp_path / name) for name in ("twice", "once"))
    assert twice is not None
    assert once is not None
    same_bits(twice.state, once.state)
    assert [row["round"] for row in Run.open(tmp_path / "twice").history] == [1, 2, 3, 4]


@pytest.mark.nightly
def test_a_run_of_ranks_is_a_run_like_any_other(tmp_path: Path) -> None:
    """It goes on in one process, and predicts; only the leader writes."""
    done = torchrun("scool_ppl", *FIT, *SGD, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert done.stdout.count("graph, history and pictures in") == 1
    more = torchrun("scool_ppl", "resume", tmp_path / "run", "--rounds", "5", "--quiet")
    assert more.returncode == 0, more.stderr
    run = Run.open(tmp_path / "run")
    assert [row["round"] for row in run.history] == [1, 2, 3, 4, 5]
    assert isinstance(run.network("client 0"), torch.nn.Module)
    again = torchrun("scool_ppl", "resume", tmp_path / "run", "--quiet")
    assert again.returncode == 0, "nothing is left to do, and nobody waits for anybody"
    other = torchrun("scool_ppl", "compare", "ring", "local")
    assert other.returncode != 0
    assert "leave torchrun out" in other.stderr


def test_a_share_is_a_client_at_least() -> None:
    shares = [list(Ranks(rank, 3).share(7)) for rank in range(3)]
    assert [client for share in shares for client in share] == list(range(7))
    assert {len(share) for share in shares} == {2, 3}
    refuses(lambda: Ranks(0, 3).share(2), "2 clients were to be shared by 3 processes")


def test_without_torchrun_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    with ranks() as group:
        assert group is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with ranks() as group:
        assert group is None
