"""What is learned of columns: means, deviations and shares as loops over clients find them, labels in their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from scool_ppl.data.preparation import Category, Numeric, Preparation
from scool_ppl.data.tables.learning import Scale, Stacked, learn, learn_anew
from scool_ppl.errors import InputError
from tests.helpers.hospitals import hospitals

TABLES = hospitals(rows=40, seed=7)
for _table in TABLES.values():
    _table.loc[::7, "lactate"] = np.nan
    _table.loc[::9, "ward"] = None


def stacked(scale: Scale, tables: dict[str, pd.DataFrame] = TABLES, **options: Any) -> Stacked:
    """Every third row is held out."""
    owner = np.repeat(np.arange(len(tables)), [len(table) for table in tables.values()])
    return Stacked(tables, owner, np.arange(len(owner)) % 3 > 0, scale, options.get("missing", "mean"))


def parts(rows: Stacked) -> list[pd.DataFrame]:
    """The training rows that are taken together."""
    every, owner, _ = pd.concat(rows.tables.values(), ignore_index=True), *rows.groups
    return [every[rows.train & (owner == group)] for group in range(rows.groups[1])]


def by_name(found: Preparation) -> dict[str, Any]:
    return {column.name: column for column in found.columns}


@pytest.mark.parametrize("scale", ["pooled", "client"])
def test_moments_and_shares_are_those_of_the_training_rows(scale: Scale) -> None:
    rows = stacked(scale)
    found = learn(rows, "days", ["lactate", "ward", "smoker"], classification=False)
    columns, groups = by_name(found), parts(rows)
    for column, name in ((columns["lactate"], "lactate"), (columns["smoker"], "smoker"), (found.target, "days")):
        assert isinstance(column, Numeric)
        values = [part[name].dropna().to_numpy(float) for part in groups]
        np.testing.assert_allclose(column.mean, [np.mean(own) for own in values])
        np.testing.assert_allclose(column.std, [np.std(own) for own in values])
    assert columns["lactate"].fill == columns["lactate"].mean
    ward = columns["ward"]
    assert ward.values == ("intensive care", "medicine", "surgery")
    shares = [[(part["ward"].dropna() == value).mean() for value in ward.values] for part in groups]
    np.testing.assert_allclose(ward.fill, shares)
    assert found.clients == (tuple(TABLES) if scale == "client" else ())


def test_numbers_may_be_left_as_they_are() -> None:
    found = learn(stacked("none"), "days", ["age", "lactate"], classification=False)
    age, lactate = found.columns
    assert isinstance(lactate, Numeric)
    assert (lactate.mean, lactate.std) == ((0.0,), (1.0,))
    assert lactate.fill[0] == pytest.approx(parts(stacked("none"))[0]["lactate"].mean())
    assert found.target == Numeric("days")
    assert age.name == "age"


def test_the_same_everywhere_is_nothing_and_the_same_at_one_client_is_0() -> None:
    """0.1 has a mean that is not 0.1 in the last bit: its deviation is rounding, no scale."""
    tables = {name: table.assign(same=0.1, own=float(place)) for place, (name, table) in enumerate(TABLES.items())}
    pooled = learn(
        stacked("pooled", {name: t.drop(columns="same") for name, t in tables.items()}), "days", ["own"], False
    )
    assert by_name(pooled)["own"].std[0] == pytest.approx(np.std(np.repeat(np.arange(6.0), 40)), rel=0.01)
    with pytest.warns(UserWarning, match="constant in all training rows and left out: same, own"):
        own = learn(stacked("client", tables), "days", ["same", "own", "age"], False)
    assert [column.name for column in own.columns] == ["age"]
    one = {name: table.assign(age=50 if name == "hospital 1" else table["age"]) for name, table in TABLES.items()}
    age = by_name(learn(stacked("client", one), "days", ["age"], False))["age"]
    assert (age.mean[0], age.std[0]) == (50.0, 1.0)
    with pytest.raises(InputError, match="every column is constant in the training rows"):
        learn(stacked("pooled", tables), "days", ["same"], False)


def test_labels_are_in_the_order_of_numbers_or_of_the_alphabet() -> None:
    def labels(values: list[Any]) -> tuple[str, ...]:
        tables = {
            name: table.assign(y=np.resize(np.array(values, dtype=object), len(table)))
            for name, table in TABLES.items()
        }
        return learn(stacked("pooled", tables), "y", ["age"], classification=True).labels

    assert labels([10, 9, 1]) == ("1", "9", "10")
    assert labels(["b", "c", "a"]) == ("a", "b", "c")
    tables = {name: table.assign(y=pd.Categorical(table["sex"])) for name, table in TABLES.items()}
    assert learn(stacked("pooled", tables), "y", ["age"], classification=True).labels == ("f", "m")
    assert labels(["<5", "10", "9"]) == ("9", "10", "<5")
    with pytest.raises(
        InputError, match=r"the target 'y' has values such as 0\.5, expected classes; for numbers say task="
    ):
        labels([0.5, 1.0])
    with pytest.raises(InputError, match="the target 'y' is a in all rows, expected at least two classes"):
        labels(["a"])


def test_missing_values_are_counted_by_column_and_client() -> None:
    with pytest.raises(
        InputError, match=r"missing, lactate: 6 in hospital 1, 6 in hospital 2, .*; ward: 5 in hospital 1, "
    ):
        learn(stacked("pooled", missing="error"), "died", ["lactate", "ward"], classification=True)


def test_other_clients_have_the_same_columns_with_their_own_scales() -> None:
    rows = stacked("client")
    known = learn(rows, "days", ["lactate", "ward"], classification=False)
    assert learn_anew(replace(rows, missing="error"), known) == known
    fewer = stacked("client", {name: table[table["ward"] != "medicine"] for name, table in TABLES.items()})
    ward = by_name(learn_anew(fewer, known))["ward"]
    assert isinstance(ward, Category)
    assert ward.values == ("intensive care", "medicine", "surgery")
    assert {shares[1] for shares in ward.fill} == {0.0}
