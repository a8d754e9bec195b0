"""`scool predict` and `scool export`: files for others, from a run's folder alone."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch

from scool_ppl import Federation, load_federation
from scool_ppl.runs import Run
from scool_ppl.workbench.predict import predict
from tests.helpers.command import TINY, contents, fit, refused, scool
from tests.helpers.hospitals import NAMES, hospitals, write_hospitals

SMALL = ("--rounds=1", "--warmup-epochs=20", "--local-epochs=1", "--executor=stacked", "--quiet")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("networks") / "run"
    fit(folder, "local")
    return folder


@pytest.fixture(scope="module")
def of_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six hospitals, whose data are gone."""
    folder = tmp_path_factory.mktemp("tables")
    data = write_hospitals(folder / "hospitals")
    spec = f"tables:{data}:target=died,scale=client"
    answer = scool("fit", "scool_sbm", "--deploy=stack", "--federation", spec, "--out", folder / "run", *SMALL)
    assert answer.code == 0, answer.err
    federation = Federation.from_tables(data, "died", scale="client")
    torch.save([federation.inputs[rows] for rows in federation.test], folder / "inputs.pt")
    shutil.rmtree(data)
    return folder / "run"


def test_predictions_for_test_images_are_those_of_the_library(run: Path, tmp_path: Path) -> None:
    said = scool("predict", run, "--client", "client 1", "--out", tmp_path / "answers.npz")
    assert "predictions of 1 client for its own test images" in said.out
    with np.load(tmp_path / "answers.npz") as arrays:
        assert set(arrays) == {"names", "predictive", "classes"}
        assert arrays["names"].tolist() == ["client 1"]
        np.testing.assert_allclose(arrays["predictive"], predict(run, clients=["client 1"]).predictive)


def test_a_new_table_is_answered_by_labels_and_probabilities(of_tables: Path, tmp_path: Path) -> None:
    """As the federation prepared it: the data, with which this is compared, are no longer there."""
    table = hospitals()[NAMES[1]].head(20)
    for ending in ("csv", "parquet"):
        file = tmp_path / f"new.{ending}"
        table.drop(columns=["died", "days"]).to_csv(file, index=False) if ending == "csv" else table.to_parquet(file)
        said = scool("predict", of_tables, file, "--client", NAMES[1], "--out", tmp_path / f"{ending}.csv")
        assert (said.code, said.err) == (0, "")
        assert said.out == f"predictions of 1 client for 20 inputs in {tmp_path / f'{ending}.csv'}\n"
    assert (tmp_path / "csv.csv").read_text() == (tmp_path / "parquet.csv").read_text()
    answers = pd.read_csv(tmp_path / "csv.csv")
    assert list(answers) == ["client", "row", "prediction", "probability of no", "probability of yes"]
    assert answers.row.tolist() == list(range(20))
    assert set(answers.client) == {NAMES[1]}
    np.testing.assert_allclose(answers["probability of no"] + answers["probability of yes"], 1, atol=1e-6)
    assert (answers.prediction == np.where(answers["probability of yes"] > 0.5, "yes", "no")).all()
    assert (answers.prediction == table.died.to_numpy()).mean() > 0.7
    network = Run.open(of_tables).network(NAMES[1])
    assert network.predict(table).tolist() == answers.prediction.tolist()
    inputs = torch.load(of_tables.parent / "inputs.pt")[1]
    raw = network.prepare.get_buffer("mean") + network.prepare.get_buffer("std") * inputs
    torch.testing.assert_close(network(raw), network.from_prepared(inputs), rtol=1e-4, atol=1e-4)


def test_predictions_do_not_replace_what_they_are_of(of_tables: Path, tmp_path: Path) -> None:
    table = tmp_path / "predictions.csv"
    hospitals()[NAMES[0]].head(2).to_csv(table, index=False)
    (tmp_path / "link.csv").symlink_to(table)
    before = table.read_bytes()
    for inputs, out in ((table, table), (tmp_path / "link.csv", table)):
        assert "would replace the inputs" in refused("predict", of_tables, inputs, "--out", out)
    assert table.read_bytes() == before


def test_all_clients_answer_line_by_line(of_tables: Path, tmp_path: Path) -> None:
    hospitals()[NAMES[0]].head(2).to_csv(tmp_path / "new.csv", index=False)
    strange = scool("predict", of_tables, tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert (strange.code, strange.err) == (0, "")
    with (tmp_path / "out.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["client"], line["row"]) for line in lines] == [(name, str(row)) for name in NAMES for row in (0, 1)]


def test_networks_are_written_for_others(of_tables: Path, tmp_path: Path) -> None:
    names = NAMES[1:3]
    said = scool("export", of_tables, *(f"--client={name}" for name in names), "--quiet", "--out", tmp_path / "a")
    assert (said.code, said.err) == (0, "")
    assert said.out == f"2 networks as torch in {tmp_path / 'a'}\n"
    stems = [name.replace(" ", "_") for name in names]
    assert sorted(contents(tmp_path / "a")) == sorted(f"{stem}{end}" for stem in stems for end in (".json", ".pt2"))
    told = json.loads((tmp_path / "a" / f"{stems[0]}.json").read_text())
    assert told["labels"] == ["no", "yes"]
    assert told["preparation"]["clients"] == []
    program = torch.export.load(tmp_path / "a" / f"{stems[0]}.pt2").module()
    network = Run.open(of_tables).network(names[0])
    raw = 3 * torch.rand(4, *network.input_shape)
    torch.testing.assert_close(program(raw), network(raw))


def test_all_networks_go_into_the_runs_folder_by_default(run: Path) -> None:
    assert (
        scool("export", run, "--format", "safetensors", "--quiet").out
        == f"4 networks as safetensors in {run}/exported\n"
    )
    for place, name in enumerate(Run.open(run).clients()):
        found = safetensors.torch.load_file(run / "exported" / f"{name.replace(' ', '_')}.safetensors")
        expected = Run.open(run).deployment.ensemble.predictors[0].networks
        assert all(torch.equal(found[f"candidates.0.{key}"], value[place]) for key, value in expected.items())


def test_bad_input_is_one_line(run: Path, of_tables: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "x.csv")
    assert "client 9" in refused("predict", run, "--client", "client 9", "--out", tmp_path / "x.npz")
    assert "client 9" in refused("export", run, "--client", "client 9", "--out", tmp_path / "x")
    assert "unknown format 'onx'" in refused("export", run, "--format", "onx", "--quiet")
    pd.DataFrame({"age": [3]}).to_csv(tmp_path / "few.csv", index=False)
    assert "no column 'sex'" in refused("predict", of_tables, tmp_path / "few.csv", "--client", NAMES[0], *out)
    assert "has learned from arrays" in refused("predict", run, tmp_path / "few.csv", *out)
    assert "no file" in refused("predict", of_tables, tmp_path / "none.csv", *out)
    assert "ends in .npz or .csv" in refused("predict", run, "--out", tmp_path / "x.txt")
    assert not list(tmp_path.glob("x*"))


def test_a_folder_of_an_earlier_version_opens_and_says_what_is_missing(tmp_path: Path) -> None:
    """`scool resume` writes what it lacks."""
    folder = tmp_path / "run"
    fit(folder, "local")
    path = folder / "deployed" / "deployment.json"
    told = json.loads(path.read_text())
    del told["blueprint"]
    path.write_text(json.dumps(told))
    opened = Run.open(folder)
    assert opened.clients() == load_federation(TINY[0].partition("=")[2]).names
    assert opened.deployment.candidates == ("mixed",)
    line = refused("predict", folder, "--out", tmp_path / "x.npz")
    assert "written by an earlier version" in line
    assert f"`scool resume {folder}` writes it" in line
    assert scool("resume", folder, "--quiet").code == 0
    assert scool("predict", folder, "--out", tmp_path / "x.npz").code == 0
