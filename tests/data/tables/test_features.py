"""Features: the other columns unless they are named, and the same for all clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from scool_ppl.data.tables.features import chosen_features
from tests.helpers.refusals import Case, refused, refuses

DIED = {"target": "died"}


def tables(*others: str, **own: Any) -> dict[str, pd.DataFrame]:
    """Two tables, the second with columns of its own in addition to, or in place of, those of the first."""
    columns = ["age", "sex", "zip", "died"]
    return {"a": pd.DataFrame(columns=columns), "b": pd.DataFrame(columns=[*(others or columns), *own])}


def test_features_are_the_other_columns_unless_they_are_named() -> None:
    assert chosen_features(tables(), {**DIED, "split": "sex"}) == ["age", "zip"]
    assert chosen_features(tables(), DIED, without=["zip"]) == ["age", "sex"]
    assert chosen_features(tables(), DIED, ["sex", "age"]) == ["sex", "age"]


def test_what_is_not_used_may_differ() -> None:
    assert chosen_features(tables("died", "age", "sex", "x"), DIED, ["sex", "age"]) == ["sex", "age"]
    assert chosen_features(tables("died", "age", "sex"), DIED, without=["zip"]) == ["age", "sex"]
    assert chosen_features(tables(x=1), DIED, without=["x"]) == ["age", "sex", "zip"]
    assert chosen_features(tables("died", "zip", "sex", "age"), DIED) == ["age", "sex", "zip"], (
        "the order is the first's"
    )


def test_columns_without_a_name_are_left_out() -> None:
    indexed = {name: table.assign(**{"Unnamed: 0": 0}) for name, table in tables().items()}
    with pytest.warns(UserWarning, match="columns without a name are left out: Unnamed: 0"):
        assert chosen_features(indexed, DIED) == ["age", "sex", "zip"]
    assert chosen_features({**tables(), "c": indexed["b"]}, DIED) == ["age", "sex", "zip"]
    assert chosen_features(indexed, DIED, without=["Unnamed: 0"]) == ["age", "sex", "zip"]


REFUSED: list[Case] = [
    (
        lambda: chosen_features(tables("died", "age", "sex"), DIED),
        "the table of b lacks zip, expected the columns of a; ren",
    ),
    (
        lambda: chosen_features(tables(x=1, y=2), DIED),
        "the table of b has also x, y, expected the columns of a; rename them",
    ),
    (
        lambda: chosen_features(tables("age", "w"), DIED, ["age"]),
        "no target column 'died' in the table of b, expected it in every table; add it",
    ),
    (
        lambda: chosen_features(dict(reversed(tables("age", "sex", "zip").items())), DIED),
        "no target column 'died' in the table of b, expected it in every table; add it",
    ),
    (lambda: chosen_features(tables(), {"target": "dead"}), "unknown target column 'dead'; known: age, died"),
    (lambda: chosen_features(tables(), DIED, ["age", "size"]), "unknown feature 'size'"),
    (lambda: chosen_features(tables(), DIED, without=["size"]), "unknown column to leave out 'size'"),
    (
        lambda: chosen_features(tables(), DIED, ["died"]),
        "'died' is a feature and the target, expected one of both; drop one",
    ),
    (lambda: chosen_features(tables(), DIED, ["age"], ["zip"]), "features= and without= were both given"),
    (lambda: chosen_features(tables(), DIED, []), "features are [], expected at least one column"),
    (
        lambda: chosen_features(tables(), DIED, ["age", "age"]),
        "features are ['age', 'age'], expected at least one column",
    ),
    (lambda: chosen_features(tables(), DIED, without=["age", "sex", "zip"]), "features are [], expected at least one"),
]


@refused(REFUSED)
def test_refused(call: Callable[[], Any], words: str) -> None:
    refuses(call, words)
