"""Federations of tables: six hospitals however their tables come, prepared from training rows alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from scool_ppl.data.federation import Federation
from scool_ppl.data.preparation import Numeric, Preparation
from scool_ppl.tasks.categorical import Classification
from scool_ppl.tasks.regression import Regression
from tests.helpers.federations import same_lists
from tests.helpers.hospitals import NAMES, hospitals, write_hospitals
from tests.helpers.refusals import Case, refused, refuses

NUMBERS = ["age", "platelets", "lactate", "smoker"]
TABLES = {name: table.drop(columns="days") for name, table in hospitals().items()}


def made(source: Any = None, target: str = "died", **options: Any) -> Federation:
    return Federation.from_tables(TABLES if source is None else source, target, **options)


def changed(name: str = NAMES[1], **columns: Any) -> dict[str, pd.DataFrame]:
    """The tables, one of them with other columns; None takes a column away."""
    table = TABLES[name].assign(**{column: value for column, value in columns.items() if value is not None})
    return {**TABLES, name: table.drop(columns=[column for column, value in columns.items() if value is None])}


def holes(*rows: int) -> pd.Series:
    return TABLES[NAMES[1]]["age"].where(~TABLES[NAMES[1]].index.isin(rows))


def together() -> pd.DataFrame:
    return pd.concat([table.assign(hospital=name) for name, table in TABLES.items()], ignore_index=True)


def test_inputs_are_scaled_by_the_training_rows_of_all_and_categories_are_one_hot() -> None:
    federation = made(seed=3)
    rows, train = pd.concat(TABLES.values(), ignore_index=True), torch.cat(federation.train).numpy()
    scaler = StandardScaler().fit(rows.loc[train, NUMBERS].astype(float))
    encoder = OneHotEncoder(sparse_output=False).fit(rows[["sex", "ward"]])
    assert federation.preparation is not None
    names = list(federation.preparation.feature_names)
    own = [names.index(name) for name in NUMBERS]
    assert names == ["age", "sex=f", "sex=m", "ward=intensive care", "ward=medicine", "ward=surgery", *NUMBERS[1:]]
    others = [place for place in range(len(names)) if place not in own]
    np.testing.assert_allclose(federation.inputs[:, own], scaler.transform(rows[NUMBERS].astype(float)), atol=1e-5)
    np.testing.assert_array_equal(federation.inputs[:, others], encoder.transform(rows[["sex", "ward"]]))
    assert federation.names == NAMES
    assert federation.class_names == ("no", "yes")
    assert federation.task == Classification(2)
    assert [federation.class_names[label] for label in federation.targets] == rows["died"].tolist()


def test_test_rows_do_not_leak() -> None:
    """Whatever the held-out rows hold, the training rows are the same inputs."""
    federation, wild = made(), {}
    for client, (name, table) in enumerate(TABLES.items()):
        first = sum(len(other) for other in list(TABLES.values())[:client])
        held_out = torch.cat([federation.validation[client], federation.test[client]]).numpy() - first
        wild[name] = table.astype({"age": float})
        wild[name].loc[held_out, ["age", "platelets"]] = 1e6
    other, train = made(wild), torch.cat(federation.train)
    assert torch.equal(other.inputs[train], federation.inputs[train])
    assert not torch.equal(other.inputs, federation.inputs)
    missing = {name: table.assign(age=table["age"].where(table["age"] < 1e5)) for name, table in wild.items()}
    filled = made(missing, missing="mean")
    assert torch.equal(filled.inputs[train], federation.inputs[train])
    assert filled.inputs[torch.cat(federation.test), 0].abs().max() < 1e-6, "the training mean, as a scaled input"


def test_the_scale_of_each_client() -> None:
    federation = made(scale="client", seed=1)
    assert federation.preparation is not None
    for client, name in enumerate(NAMES):
        inputs = federation.inputs[federation.train[client]].double()
        assert inputs[:, 0].mean().abs() < 1e-6
        assert inputs[:, 0].std(correction=0) == pytest.approx(1, abs=1e-5)
        rows = (
            torch.cat([federation.train[client], federation.validation[client], federation.test[client]]).sort().values
        )
        assert torch.equal(federation.inputs[rows], federation.preparation.transform(TABLES[name], name))
    with pytest.warns(UserWarning, match=r"inputs are of size .* \(column 'platelets'\), expected about one: scale"):
        plain = made(scale="none")
    assert plain.inputs[:, 0].tolist() == pd.concat(TABLES.values())["age"].tolist()


@pytest.mark.parametrize("source", ["folder", "paths", "mapping of paths", "parquet", "npz", "one table", "one file"])
def test_however_the_tables_come(source: str, tmp_path: Path) -> None:
    ending = {"parquet": ".parquet", "npz": ".npz"}.get(source, ".csv")
    folder, options = write_hospitals(tmp_path / "hospitals", ending=ending), {}
    (folder / ".hidden.csv").write_text("")
    given: Any = str(folder)
    if source == "paths":
        given = [folder / f"{name}.csv" for name in NAMES]
    if source == "mapping of paths":
        given = {name: folder / f"{name}.csv" for name in NAMES}
    if source.startswith("one"):
        given, options = together(), {"client": "hospital"}
    if source == "one file":
        given.to_csv(tmp_path / "all.csv", index=False)
        given = tmp_path / "all.csv"
    found, expected = made(given, **options), made()
    assert found.names == expected.names
    assert torch.equal(found.inputs, expected.inputs)
    assert same_lists(found, expected)
    assert found.fingerprint == expected.fingerprint


def test_labels_of_any_kind_are_remembered() -> None:
    def relabelled(labels: dict[str, Any]) -> Federation:
        return made({name: table.assign(died=table["died"].map(labels)) for name, table in TABLES.items()})

    assert relabelled({"yes": 10, "no": 9}).class_names == ("9", "10")
    assert relabelled({"yes": 1.0, "no": 0.0}).class_names == ("0", "1")
    assert relabelled({"yes": True, "no": False}).class_names == ("False", "True")
    assert torch.equal(relabelled({"yes": 10, "no": 9}).targets, made().targets)


def test_whole_numbers_that_are_hardly_classes_are_warned_of() -> None:
    with pytest.warns(
        UserWarning, match=r"the target 'age' has \d\d numbers as classes; for numbers say task=regression"
    ):
        made(target="age")


def test_regression_is_standardised_and_predictions_have_the_unit_of_the_table() -> None:
    tables = {name: table.drop(columns="died") for name, table in hospitals().items()}
    federation = made(tables, "days", task="regression:sigma=0.5", seed=2)
    days = torch.tensor(pd.concat(tables.values())["days"].to_numpy())
    train = torch.cat(federation.train)
    assert federation.task == Regression(0.5, 1, federation.task.variance)  # type: ignore[attr-defined]
    expected = (days - days[train].mean()) / days[train].std(correction=0)
    torch.testing.assert_close(federation.targets, expected.float())
    assert federation.preparation is not None
    torch.testing.assert_close(
        federation.preparation.decode_target(federation.targets.double()), days, atol=1e-5, rtol=0
    )
    own = made(tables, "days", task="regression", scale="client")
    assert torch.stack([own.targets[rows].mean() for rows in own.train]).abs().max() < 1e-5
    with pytest.warns(UserWarning, match=r"targets are of size 1.*, expected about one"):
        plain = made(tables, "days", task="regression", scale="none", features=["lactate"])
    assert plain.targets.double() == pytest.approx(days)


def test_split_groups_and_features() -> None:
    table = together()
    table["part"] = np.resize(["train", "train", "validation", "test"], len(table))
    table["state"] = np.where(table["hospital"].isin(NAMES[:3]), "Ohio", "Iowa")
    options: dict[str, Any] = {"client": "hospital", "split": "part", "features": ["lactate", "age"]}
    federation = made(table, groups="state", **options)
    assert federation.preparation is not None
    assert federation.preparation.feature_names == ("lactate", "age")
    assert [federation.sizes(split).tolist() for split in ("train", "validation", "test")] == [
        [30] * 6,
        [15] * 6,
        [15] * 6,
    ]
    state = {**dict.fromkeys(NAMES[:3], 1), **dict.fromkeys(NAMES[3:], 0)}
    assert federation.groups == tuple(state[name] for name in federation.names)
    assert made(table, groups=state, **options).groups == federation.groups
    assert made(table, groups=[4, 4, 4, 4, 5, 5], **options).groups == (4, 4, 4, 4, 5, 5)


def test_newcomers_are_prepared_as_the_others_were() -> None:
    first, last = dict(list(TABLES.items())[:4]), dict(list(TABLES.items())[4:])
    federation = made(first)
    newcomers = Federation.from_tables(last, preparation=federation.preparation)
    both = federation.join(newcomers)
    assert both.preparation == federation.preparation
    assert both.names == NAMES
    assert torch.equal(newcomers.inputs, federation.preparation.transform(pd.concat(last.values())))  # type: ignore[union-attr]
    assert federation.preparation is not None
    assert federation.fingerprint != made(first, scale="client").fingerprint
    assert isinstance(Preparation.from_json(federation.preparation.to_json()).columns[0], Numeric)


@pytest.mark.parametrize("target", ["died", "days"])
def test_newcomers_have_a_scale_of_their_own_where_everybody_has(target: str) -> None:
    tables = {name: table.drop(columns="days" if target == "died" else "died") for name, table in hospitals().items()}
    for table in tables.values():
        table.loc[3:4, "age"], table.loc[5, "ward"] = np.nan, None
    task = "classification" if target == "died" else "regression"
    options: dict[str, Any] = {"scale": "client", "missing": "mean", "task": task}
    whole = made(tables, target, **options)
    first = made(dict(list(tables.items())[:4]), target, **options)
    later = dict(list(tables.items())[4:])
    newcomers = Federation.from_tables(later, preparation=first.preparation)
    assert first.preparation is not None
    both = first.join(newcomers)
    assert both.preparation == whole.preparation
    assert torch.equal(both.inputs, whole.inputs)
    assert torch.equal(both.targets, whole.targets)
    again = Federation.from_tables({NAMES[1]: tables[NAMES[1]]}, preparation=first.preparation)
    assert again.preparation == first.preparation, "of a client that is known"


def test_columns_that_say_nothing_are_named_and_left_out() -> None:
    with pytest.warns(UserWarning, match="constant in all training rows and left out: country, empty;"):
        federation = made(
            {name: table.assign(country="US", empty=np.nan) for name, table in TABLES.items()}, missing="mean"
        )
    assert federation.inputs.shape[1] == 9
    with pytest.warns(UserWarning, match="columns without a name are left out: Unnamed: 0"):
        indexed = made({name: table.assign(**{"Unnamed: 0": range(60)}) for name, table in TABLES.items()})
    assert torch.equal(indexed.inputs, made().inputs)


def test_small_clients_and_clients_of_one_class_are_named() -> None:
    few = {**TABLES, "a": TABLES[NAMES[0]][:3].assign(died="no"), "b": TABLES[NAMES[1]][:40].assign(died="yes")}
    with pytest.warns(UserWarning, match="clients") as warned:
        made(few, test=0.1)
    assert [str(warning.message) for warning in warned] == [
        "training rows of one class only: a, b (2 of 8 clients); alone they learn nothing else, give them rows of others",
        "no test rows: a (1 of 8 clients); they get no score, give them more rows",
    ]
    with pytest.warns(UserWarning, match="a "):
        assert made({**TABLES, "a": TABLES[NAMES[0]][:1]}, validation=0).sizes("train")[-1] == 1


REFUSED: list[Case] = [
    (
        lambda: made(changed(age=holes(3, 4))),
        "values are missing, age: 2 in hospital 2; expected none; fill them in, leave",
    ),
    (
        lambda: made(changed(died=TABLES[NAMES[1]]["died"].where(holes(1).notna())), missing="mean"),
        "died: 1 in hospital 2",
    ),
    (
        lambda: made(changed(age=np.nan), missing="mean", scale="client"),
        "'age' has no value in the training rows of hosp",
    ),
    (
        lambda: made(changed(age=None)),
        "the table of hospital 2 lacks age, expected the columns of hospital 1; rename them",
    ),
    (lambda: made(changed(zip=1, x=2)), "the table of hospital 2 has also x, zip, expected the columns of hospital 1"),
    (
        lambda: made(changed(age="old")),
        "column 'age' holds numbers in hospital 1 and texts in hospital 2, expected one",
    ),
    (lambda: made(changed(age="12")), "column 'age' of hospital 2 holds numbers as text, e.g. '12'"),
    (
        lambda: made(
            {name: table.assign(ward=[f"{name} {row}" for row in range(60)]) for name, table in TABLES.items()}
        ),
        "column 'ward' has 360 different texts, e.g. 'hospital 1 0', expected at most 100 categories; leave it out",
    ),
    (lambda: made(target="dead"), "unknown target column 'dead'; known: age, died"),
    (lambda: made(features=["age", "size"]), "unknown feature 'size'"),
    (lambda: made(features=["age", "died"]), "'died' is a feature and the target, expected one of both; drop one"),
    (lambda: made(features="age"), "features is the text 'age', expected a list of names"),
    (lambda: made(features=[]), "features are [], expected at least one column"),
    (lambda: Federation.from_tables(TABLES), "no target was named, expected the column that is to be predicted"),
    (lambda: made(target="lactate"), "the target 'lactate' has values such as"),
    (lambda: made(target="platelets"), "the target 'platelets' has values 3"),
    (lambda: made(target="ward", task="regression"), "the target 'ward' of hospital 1 holds categories such as"),
    (lambda: made(task="next-token"), "unknown task of a table 'next-token'; known: classification, regression"),
    (lambda: made(scale="all"), "unknown scale value 'all'; known: client, none, pooled"),
    (lambda: made(missing="drop"), "unknown missing value 'drop'; known: error, mean"),
    (lambda: made(together()), "one table was given, expected one for each client, or client="),
    (lambda: made(together(), client="ward2"), "unknown client column 'ward2'"),
    (lambda: made(TABLES, split="sex"), "the split column 'sex' holds '"),
    (lambda: made(TABLES, groups="sex"), "the group column 'sex' has 2 values in hospital 1, expected one a client"),
    (lambda: made(TABLES, groups={"hospital 1": 0}), "groups do not name hospital 2"),
    (lambda: made({}), "no tables were given"),
    (
        lambda: made({1: TABLES[NAMES[0]], "1": TABLES[NAMES[1]]}),
        "two tables are both named 1, expected a name a client",
    ),
    (lambda: made(["a.csv", "b/a.csv"]), "are both named a, expected one file a client"),
    (lambda: made([together()]), "the list of tables has a DataFrame, expected paths; give a mapping"),
    (lambda: made({**TABLES, "none": TABLES[NAMES[0]][:0]}), "the table of none has no rows"),
    (
        lambda: made({**TABLES, "a": TABLES[NAMES[0]][:1], "b": TABLES[NAMES[0]][:2]}),
        "too few rows for validation=0.2: a (1), b (2); expected at least 3 a client; leave these clients out, or say",
    ),
    (lambda: made(validation=-0.1), "validation=-0.1 and test=0.2, expected fractions from 0 whose sum is below 1"),
    (lambda: made("nowhere/"), "no file or folder 'nowhere'; expected a folder of tables"),
]


@refused(REFUSED)
def test_refused(call: Callable[[], Any], words: str) -> None:
    refuses(call, words)
