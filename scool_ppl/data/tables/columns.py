"""One column of a table: which kind it is, and its values as numbers or as texts."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from scool_ppl.errors import InputError

NUMBER, CATEGORY, EMPTY = "numbers", "categories", "nothing"

_KINDS = {
    **dict.fromkeys(("integer", "floating", "mixed-integer-float", "boolean", "decimal"), NUMBER),
    **dict.fromkeys(("string", "categorical"), CATEGORY),
    "empty": EMPTY,
}
MOSTLY = 0.8
"""The share of a column's different texts beyond which it holds what they are."""
_MONTH = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DATE = (
    rf"\d{{4}}[-./]\d{{1,2}}[-./]\d{{1,2}}|\d{{1,2}}[-./]\d{{1,2}}[-./]\d{{2,4}}|\d{{8}}t\d+"
    rf"|{_MONTH}\.? \d{{1,2}},? \d{{4}}|\d{{1,2}}\.?[- ]{_MONTH}\.?[- ]\d{{2,4}}"
)


def pandas() -> Any:
    """The module pandas, which is an extra."""
    try:
        return import_module("pandas")
    except ImportError as error:
        raise InputError(
            f"tables need pandas, which cannot be imported ({error}); pip install 'scool_ppl[tables]'"
        ) from error


def kind_of(series: Any, who: str) -> str:
    """NUMBER, CATEGORY or, where all values are missing, EMPTY; dates and numbers that are written as text are refused.

    who: the column and its client, for errors. True and false are the numbers 1 and 0.
    """
    if _plain(series):
        return NUMBER if series.notna().any() else EMPTY
    found = pandas().api.types.infer_dtype(series, skipna=True)
    if found not in _KINDS:
        remedy = "make it numbers (e.g. days since a day)" if "date" in found else "make it numbers or texts"
        raise InputError(
            f"{who} holds {found} values, expected numbers or categories; {remedy}, or leave it out (without=)"
        )
    present = series.dropna()
    if _KINDS[found] == EMPTY or present.empty:
        return EMPTY
    if found == "string":
        _refuse_text(pandas().Series(present.astype(str).str.strip().unique()), who)
    return _KINDS[found]


def numbers(series: Any, who: str) -> np.ndarray[Any, Any]:
    """(N,) float64, nan where a value is missing."""
    if not _plain(series) and kind_of(series, who) == CATEGORY:
        example = series.dropna().iloc[0]
        raise InputError(f"{who} holds {CATEGORY} such as '{example}', expected numbers; convert the column")
    numeric = series if _plain(series) else pandas().to_numeric(series)
    found: np.ndarray[Any, Any] = numeric.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(found).any():
        count = int(np.isinf(found).sum())
        raise InputError(f"{who} holds {count} infinite values, expected finite numbers; correct or remove them")
    return found


def _plain(series: Any) -> bool:
    """Numbers of numpy: nothing has to be looked at to know so."""
    return isinstance(series.dtype, np.dtype) and series.dtype.kind in "iufb"


def texts(series: Any) -> np.ndarray[Any, Any]:
    """(N,) texts as objects, None where a value is missing; 3.0 is written as 3."""
    codes, values = pandas().factorize(series)
    written = np.array([*(as_text(value) for value in values), None], dtype=object)
    return written[codes]


def as_text(value: Any) -> str:
    """A label or category as it is remembered."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    return str(value).strip()


def _refuse_text(present: Any, who: str) -> None:
    """Texts most of which are numbers or dates are not categories; a stage 1, 2, 3, 4a or 4b is one."""
    as_numbers = pandas().to_numeric(present.str.replace(",", ".", regex=False), errors="coerce").notna()
    if as_numbers.mean() > MOSTLY:
        strange = present[~as_numbers]
        if len(strange):
            raise InputError(
                f"{who} holds numbers but in {len(strange)} of {len(present)} rows, e.g. '{strange.iloc[0]}', expected "
                "numbers; correct these, or leave them empty and say missing=mean; categories have the dtype 'category'"
            )
        raise InputError(
            f"{who} holds numbers as text, e.g. '{present.iloc[0]}', expected numbers; convert the column "
            "(pandas.to_numeric; read_csv(decimal=',')); a number that is a category has the dtype 'category'"
        )
    as_dates = present.str.match(_DATE, case=False)
    if as_dates.mean() > MOSTLY:
        example = present[as_dates].iloc[0]
        raise InputError(
            f"{who} holds dates, e.g. '{example}', expected numbers or categories; make them numbers (e.g. days), "
            "or leave it out with without="
        )
