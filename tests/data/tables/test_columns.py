"""Columns: what is a number, what a category, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from scool_ppl.data.tables.columns import CATEGORY, EMPTY, NUMBER, kind_of, numbers, texts
from tests.helpers.refusals import Case, refused, refuses


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], NUMBER),
        ([1.5, None], NUMBER),
        ([True, False], NUMBER),
        ([True, None], NUMBER),
        ([Decimal("1.5"), Decimal(2)], NUMBER),
        (pd.array([1, None], dtype="Int64"), NUMBER),
        (["f", "m", None], CATEGORY),
        (["stage 1", "2"], CATEGORY),
        (["1", "2", "3", "4a", "4b"], CATEGORY),
        (pd.Categorical([1, 2]), CATEGORY),
        ([None, None], EMPTY),
        ([np.nan, np.nan], EMPTY),
    ],
    ids=str,
)
def test_the_kind_of_a_column(values: Any, kind: str) -> None:
    assert kind_of(pd.Series(values), "it") == kind


def test_numbers_have_nan_and_texts_have_none_where_a_value_is_missing() -> None:
    np.testing.assert_array_equal(numbers(pd.Series([True, None, False]), "it"), [1, np.nan, 0])
    np.testing.assert_array_equal(numbers(pd.Series(pd.array([3, None], dtype="Int64")), "it"), [3, np.nan])
    assert texts(pd.Series([" a", None, "b"])).tolist() == ["a", None, "b"]
    assert texts(pd.Series([1.0, np.nan, 2.5])).tolist() == ["1", None, "2.5"]
    assert texts(pd.Series([True, False])).tolist() == ["True", "False"]


def kind(values: Any) -> Callable[[], str]:
    return lambda: kind_of(pd.Series(values), "column 'x' of a")


REFUSED: list[Case] = [
    (kind(["1,5", "2", "3"]), "column 'x' of a holds numbers as text, e.g. '1,5', expected numbers"),
    (
        kind([*map(str, range(9)), "<5"]),
        "holds numbers but in 1 of 10 rows, e.g. '<5', expected numbers; correct these, or leave them empty",
    ),
    (
        kind(["2024-01-31", "2024-02-01"]),
        "column 'x' of a holds dates, e.g. '2024-01-31', expected numbers or categories",
    ),
    (kind(["31.1.2024", "1.2.2024"]), "holds dates, e.g. '31.1.2024'"),
    (kind(["2024/01/31", "2024/02/01"]), "holds dates, e.g. '2024/01/31'"),
    (kind(["31-01-2024", "01-02-2024"]), "holds dates, e.g. '31-01-2024'"),
    (kind(["Jan 31, 2024", "Feb 1, 2024"]), "holds dates, e.g. 'Jan 31, 2024'"),
    (kind(["31 January 2024", "1-Feb-24"]), "holds dates, e.g. '31 January 2024'"),
    (kind(["20240131T0830", "20240201T0900"]), "holds dates, e.g. '20240131T0830'"),
    (kind(pd.to_datetime(["2024-01-31"])), "holds datetime64 values, expected numbers or categories; make it numbers"),
    (kind([date(2024, 1, 31)]), "holds date values, expected numbers or categories"),
    (kind([1 + 2j]), "holds complex values, expected numbers or categories"),
    (kind([[1], [2]]), "holds mixed values, expected numbers or categories"),
]


@refused(REFUSED)
def test_refused(call: Callable[[], Any], words: str) -> None:
    refuses(call, words)
