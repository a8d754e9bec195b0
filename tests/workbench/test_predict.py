"""Predictions from a run's folder: those of the ensembles that were evaluated when the run ended."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from scool_ppl import InputError, load_federation
from scool_ppl.runs import Run
from scool_ppl.workbench import Settings, Workbench
from scool_ppl.workbench.predict import Predictions, predict

SPEC = "permuted:digits:clients=4,groups=2,train=20,test=30"
BRIEF = Settings(rounds=1, warmup_epochs=5, local_epochs=1, executor="stacked")


def fitted(folder: Path, model: str, spec: str = SPEC) -> Path:
    Workbench(load_federation(spec), BRIEF, progress=False).fit(model, run=folder)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted(tmp_path_factory.mktemp("predict") / "run", "hedge")


def test_on_test_images_they_score_what_the_table_of_clients_says(run: Path) -> None:
    found, federation = predict(run), load_federation(SPEC)
    assert found.names == federation.names
    assert found.classes is not None
    torch.testing.assert_close(found.predictive.sum(-1), torch.ones(found.predictive.shape[:2]))
    with (run / "clients.csv").open() as file:
        rows = list(csv.DictReader(file))
    for place, row in enumerate(rows):
        labels = federation.labels(place, federation.test[place])
        right = (found.classes[place] == labels).double().mean()
        assert float(right) == pytest.approx(float(row["accuracy"]), abs=1e-6)


def test_new_inputs_get_the_same_answers_as_the_same_test_images(run: Path, tmp_path: Path) -> None:
    federation = load_federation(SPEC)
    np.savez(tmp_path / "new.npz", inputs=federation.inputs[federation.test[2]].numpy())
    new, own = predict(run, tmp_path / "new.npz", ["client 2", "client 3"]), predict(run, clients=["client 2"])
    assert new.names == ("client 2", "client 3")
    torch.testing.assert_close(new.predictive[0], own.predictive[0])


def test_a_mixture_of_predictions_and_a_regression_can_be_predicted_with(tmp_path: Path) -> None:
    folder = fitted(tmp_path / "run", "federico", "sine:clients=3,test=7")
    found, deployment = predict(folder), Run.open(folder).deployment
    assert found.classes is None
    assert deployment.ensemble.predictors[0].mixture is not None
    assert found.predictive.shape[:2] == (3, 7)


def test_clients_with_fewer_test_images_are_padded(tmp_path: Path) -> None:
    spec = "dirichlet:digits:clients=3,alpha=0.5,train=30,tested=as-trained"
    federation = load_federation(spec)
    sizes = federation.sizes("test").tolist()
    assert len(set(sizes)) > 1
    found = predict(fitted(tmp_path / "run", "local", spec))
    assert found.classes is not None
    assert [(row >= 0).sum() for row in found.classes] == sizes
    assert [row.isfinite().all(-1).sum() for row in found.predictive] == sizes


def test_a_csv_file_has_a_line_for_each_input(tmp_path: Path) -> None:
    nan = torch.nan
    labelled = Predictions(
        ("a", "b"),
        torch.tensor([[[0.25, 0.75], [1.0, 0.0]], [[0.5, 0.5], [nan, nan]]]),
        torch.tensor([[1, 0], [0, -1]]),
        ("no", "yes"),
    )
    labelled.save(tmp_path / "labelled.csv")
    assert (tmp_path / "labelled.csv").read_text().splitlines() == [
        "client,row,prediction,probability of no,probability of yes",
        "a,0,yes,0.25,0.75",
        "a,1,no,1,0",
        "b,0,no,0.5,0.5",
    ]
    labelled._replace(labels=()).save(tmp_path / "numbered.csv")
    assert (tmp_path / "numbered.csv").read_text().splitlines()[:2] == [
        "client,row,prediction,probability of 0,probability of 1",
        "a,0,1,0.25,0.75",
    ]
    Predictions(("a",), torch.tensor([[[2.5], [-1.0]]]), None).save(tmp_path / "means.csv")
    assert (tmp_path / "means.csv").read_text() == "client,row,prediction\na,0,2.5\na,1,-1\n"
    with pytest.raises(InputError, match=r"shape \(3, 2\), expected numbers side by side .*\.npz"):
        Predictions(("a",), torch.zeros(1, 4, 3, 2), None).save(tmp_path / "tokens.csv")


def test_neither_the_data_nor_the_model_need_be_there(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**told, "federation": "no such", "model": "none"}))
    inputs = load_federation(SPEC).inputs[:3].numpy()
    np.savez(tmp_path / "new.npz", inputs=inputs)
    assert torch.equal(
        predict(tmp_path / "run", tmp_path / "new.npz").predictive, predict(run, tmp_path / "new.npz").predictive
    )
    with pytest.raises(InputError, match="no such"):
        predict(tmp_path / "run")


def test_the_data_must_be_those_of_the_run(run: Path, tmp_path: Path) -> None:
    """Others are prepared otherwise, and split so that some may have been trained on."""
    shutil.copytree(run, tmp_path / "run")
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    told["settings"]["seed"] = 5
    (tmp_path / "run" / "run.json").write_text(json.dumps(told))
    with pytest.raises(InputError, match="are not what it learned from"):
        predict(tmp_path / "run")


def test_bad_input_is_one_line(run: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "wide.npz", inputs=np.zeros((2, 65), np.float32))
    np.savez(tmp_path / "other.npz", x=np.zeros((2, 64), np.float32))
    with pytest.raises(InputError, match=r"shape \(2, 65\), expected \(N, 64\)"):
        predict(run, tmp_path / "wide.npz")
    with pytest.raises(InputError, match="inputs"):
        predict(run, tmp_path / "other.npz")
    with pytest.raises(InputError, match="unknown client 'client 9'"):
        predict(run, clients=["client 9"])
