"""Going on from a folder: what was asked is read back as it was written, and a folder of something else is refused.

That a run goes on bit for bit, and what else is refused, is tested in tests/runs/test_journal.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from scool_ppl import InputError, load_federation
from scool_ppl.base.describe import versions
from scool_ppl.base.files import file_sha256
from scool_ppl.runs.folder import MARK, Run
from scool_ppl.workbench.resume import Request, open_run, resume
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.workbench import Workbench
from scool_ppl.zoo.load import model_path
from tests.helpers.results import BRIEF, SPEC

ASKED = Settings(rounds=1, warmup_epochs=1, local_steps=2, momentum=0.5, executor="stacked", seed=4)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of one round that has ended."""
    monkeypatch.setattr("scool_ppl.runs.folder.Run.draw", lambda run: [])
    Workbench(load_federation(SPEC, seed=4), ASKED, progress=False).fit("fedavg", {"clip": 1.0}, run=tmp_path / "run")
    return tmp_path / "run"


def test_a_request_is_read_as_it_was_written(run: Path) -> None:
    assert Request.read(Run.open(run)) == Request(
        model="fedavg",
        model_sha256=file_sha256(model_path("fedavg")),
        hyperparameters={"clip": 1.0},
        federation=SPEC,
        settings=ASKED,
        baseline=False,
        versions=versions(),
    )


def test_more_rounds_are_run_and_noted(run: Path) -> None:
    result = resume(run, 3, progress=False)
    assert [row["round"] for row in result.fit.history] == [1, 2, 3]
    assert result.summary["rounds"] == 3
    assert Request.read(Run.open(run)).settings == Settings(**{**vars(ASKED), "rounds": 3})


def test_a_network_of_the_users_own_must_be_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.runs.folder.Run.draw", lambda run: [])
    file, before = tmp_path / "net.py", "from torch import nn\ndef build(shape, outputs):\n"
    file.write_text(before + "    return nn.Sequential(nn.Flatten(), nn.Tanh(), nn.Linear(shape[0], outputs))\n")
    asked = replace(ASKED, network=str(file), optimizer="adam", momentum=0.0, class_weights="balanced")
    Workbench(load_federation(SPEC, seed=4), asked, progress=False).fit("local", run=tmp_path / "run")
    result = resume(tmp_path / "run", 2, progress=False)
    assert [row["round"] for row in result.fit.history] == [1, 2]
    assert set(result.fit.state.params) == {"2.weight", "2.bias"}
    file.write_text(before + "    return nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(shape[0], outputs))\n")
    with pytest.raises(InputError, match=r"the network file .*net.py' is not what it was when .*; restore it"):
        resume(tmp_path / "run", 3, progress=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda asked: asked.pop("model"), "model"),
        (lambda asked: asked.update(baseline="yes"), "baseline"),
        (lambda asked: asked["settings"].update(rounds="many"), "rounds"),
        (lambda asked: asked["settings"].update(rounds=0), "rounds=0"),
        (lambda asked: asked.update(settings=[]), "settings"),
    ],
    ids=["no model", "no flag", "no number", "no rounds", "no settings"],
)
def test_a_request_that_no_fit_writes_is_refused_with_another_way_on(
    change: Callable[[Any], Any], words: str, tmp_path: Path
) -> None:
    asked = {
        "model": "local",
        "model_sha256": "0",
        "hyperparameters": {},
        "federation": SPEC,
        "settings": {**vars(BRIEF)},
        "baseline": False,
        "versions": {},
    }
    folder = Run.create(tmp_path / "run", asked)
    assert Request.read(folder).settings == BRIEF
    change(asked)
    (folder.path / MARK).write_text(json.dumps(asked))
    with pytest.raises(InputError, match=words) as refusal:
        Request.read(Run.open(folder.path))
    assert "EM.fit(..., resume=True)" in str(refusal.value)


def test_a_run_opens_in_python_with_all_that_it_was_made_of(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "again")
    em, clients, state = open_run(run)
    assert em.clients is clients
    assert (state.round, state.seed) == (1, 4)
    (group,) = clients.optimizer([torch.zeros(1, requires_grad=True)]).param_groups
    assert (group["lr"], group["momentum"]) == (ASKED.rate, 0.5)
    stored = Run.open(run).deployment.ensemble.predictors[0].networks
    assert all(torch.equal(value, stored[name]) for name, value in state.params.items())
    fit = em.fit(2, run=run, resume=True, progress=False)
    other = resume(tmp_path / "again", 2, progress=False).fit
    assert all(torch.equal(value, other.state.params[name]) for name, value in fit.state.params.items())


def test_a_run_of_another_file_does_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.runs.folder.Run.draw", lambda run: [])
    file = tmp_path / "mine.py"
    file.write_text(model_path("local").read_text())
    Workbench(load_federation(SPEC, seed=4), ASKED, progress=False).fit(str(file), run=tmp_path / "run")
    assert open_run(tmp_path / "run").state.round == 1
    file.write_text(file.read_text() + "\n")
    with pytest.raises(InputError, match=r"the model file .*mine.py' is not what it was"):
        open_run(tmp_path / "run")


def test_a_comparison_is_no_run_to_go_on_with(tmp_path: Path) -> None:
    folder = Run.create(tmp_path / "comparison", {"comparison": ["local"]}).path
    for use in (open_run, resume):
        with pytest.raises(InputError, match="folder of a comparison, expected that of a fit"):
            use(folder)
