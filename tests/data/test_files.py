"""Federations of the user's own files: how a spec is taken apart, whatever its path, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from scool_ppl.data.federation import Federation
from scool_ppl.data.files import find_own, own_npz, tables
from scool_ppl.data.specs import load_federation
from scool_ppl.tasks.categorical import Classification
from scool_ppl.tasks.regression import Regression
from tests.helpers.federations import same_lists
from tests.helpers.hospitals import NAMES, hospitals, write_hospitals
from tests.helpers.refusals import refuses


@pytest.mark.parametrize(
    ("spec", "read", "path", "options"),
    [
        ("tables:hospitals/:target=died", tables, "hospitals/", ("target=died",)),
        ("tables:all.csv:target=died,client=hospital", tables, "all.csv", ("target=died", "client=hospital")),
        ("tables:a:b/run=3/x.csv:scale=none,target=a:b=c", tables, "a:b/run=3/x.csv", ("scale=none", "target=a:b=c")),
        ("tables:C:/data: target=y", tables, "C:/data", (" target=y",)),
        ("tables:v:k=1/h:task=regression:sigma=0.5", tables, "v:k=1/h", ("task=regression:sigma=0.5",)),
        ("tables:hospitals:taget=died", tables, "hospitals", ("taget=died",)),
        ("tables:hospitals", tables, "hospitals", ()),
        ("my.npz", own_npz, "my.npz", ()),
        ("a:b/my.npz:task=regression,test=0.5", own_npz, "a:b/my.npz", ("task=regression", "test=0.5")),
    ],
)
def test_a_spec_is_taken_apart(spec: str, read: Callable[..., Any], path: str, options: tuple[str, ...]) -> None:
    assert find_own(spec) == (read, path, options)


def test_a_spec_of_another_form_is_none() -> None:
    assert [find_own(spec) for spec in ("digits", "permuted:digits:clients=3", "sine")] == [None] * 3


@pytest.mark.parametrize("folder", ["hospitals", "a:b/run=3, of 4"])
def test_tables_by_name_are_those_of_from_tables(folder: str, tmp_path: Path) -> None:
    write_hospitals(tmp_path / folder)
    spec = f"tables:{tmp_path / folder}/:target=died,features=age+lactate+sex,scale=client,test=0.3,missing=mean"
    federation = load_federation(spec, seed=4)
    assert federation.spec == spec
    expected = Federation.from_tables(
        tmp_path / folder, "died", features=["age", "lactate", "sex"], scale="client", test=0.3, missing="mean", seed=4
    )
    assert federation.fingerprint == expected.fingerprint
    assert same_lists(federation, expected)
    assert load_federation(spec, clients=6, seed=4).names == NAMES
    fewer = spec.replace("features=age+lactate+sex", "without=ward+smoker+platelets")
    assert sorted(load_federation(fewer, seed=4).preparation.feature_names) == sorted(
        expected.preparation.feature_names
    )  # type: ignore[union-attr]


def test_one_table_with_a_column_of_clients_groups_and_splits(tmp_path: Path) -> None:
    table = pd.concat([table.assign(hospital=name) for name, table in hospitals().items()])
    table["part"] = np.resize(["train", "test"], len(table))
    table["state"] = np.where(table["hospital"].isin(NAMES[:3]), "Ohio", "Iowa")
    table.to_csv(tmp_path / "all.csv", index=False)
    options = "target=days,client=hospital,task=regression:sigma=0.5,groups=state,split=part,features=age+platelets"
    federation = load_federation(f"tables:{tmp_path}/all.csv:{options}")
    assert (federation.names, federation.groups) == (NAMES, (1, 1, 1, 0, 0, 0))
    assert isinstance(federation.task, Regression)
    assert (federation.task.sigma, federation.sizes("train").tolist()) == (0.5, [30] * 6)


def test_the_task_of_an_npz_file_is_what_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "my.npz"
    np.savez(
        path, inputs=np.random.default_rng(0).normal(size=(20, 2)), targets=np.arange(20) % 4, client=np.arange(20) % 2
    )
    assert load_federation(str(path)).task == Classification(4)
    numbers = load_federation(f"{path}:task=regression,test=0.5,validation=0")
    assert numbers.task.name == "regression"
    assert numbers.targets.dtype == torch.float32
    assert numbers.sizes("test").tolist() == [5, 5]
    numbers.save_npz(tmp_path / "kept.npz")
    assert load_federation(f"{tmp_path}/kept.npz").task == numbers.task
    assert load_federation(f"{path}:task=classification").task == Classification(4)


def test_wrong_specs_are_one_line(tmp_path: Path) -> None:
    folder = write_hospitals(tmp_path / "hospitals")
    cases = [
        (f"tables:{folder}", "no target was named, expected the column that is to be predicted; say target="),
        (f"tables:{folder}:taget=died", "unknown option of tables 'taget'; known: client, features"),
        (
            f"tables:{folder}:target=died,scale=all",
            "unknown option of tables scale value 'all'; known: client, none, pooled",
        ),
        (f"tables:{folder}:target=died,target=sex", "target was given twice"),
        (f"tables:{folder}:target=died,client=sex", "client='sex' was given for the folder"),
        (f"tables:{folder}/hospital 1.csv:target=died", "is one table, expected client= with the column"),
        (f"tables:{folder}s:target=died", "no file or folder"),
        (f"tables:{folder}:target=died,features=age,sex", "'sex' in tables:"),
        (f"{folder}/", "may be tables; write tables:"),
        (f"{folder}/:target=died", "may be tables; write tables:"),
        ("all.csv:target=died", "'all.csv' may be tables; write tables:all.csv:target=COLUMN"),
        ("tables:", "no target was named"),
        (f"{folder}/my.npz:tsk=regression", "unknown option of"),
    ]
    for spec, words in cases:
        refuses(lambda spec=spec: load_federation(spec), words)  # type: ignore[misc]
    refuses(
        lambda: load_federation(f"tables:{folder}:target=died", clients=5), "has 6 clients, not 5; leave the number out"
    )
