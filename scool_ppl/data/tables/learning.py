"""The Preparation of tables, learned from the training rows of all clients."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from scool_ppl.base.describe import listed
from scool_ppl.data.preparation import Category, Column, Numeric, Preparation
from scool_ppl.data.tables.columns import CATEGORY, EMPTY, NUMBER, kind_of, numbers, pandas, texts
from scool_ppl.errors import InputError

Scale = Literal["pooled", "client", "none"]
Missing = Literal["error", "mean"]
Array = np.ndarray[Any, Any]

MOST_VALUES = 100
"""Texts that one column of categories may have: more are names or free text, of which nothing general is learned."""

MANY_NUMBERS = 20
"""Whole numbers beyond so many are hardly meant as classes."""


@dataclass(frozen=True)
class Stacked:
    """The rows of all clients, one after the other: whose each is, and which of them are trained on."""

    tables: Mapping[str, Any]
    owner: Array
    train: Array
    scale: Scale
    missing: Missing

    @property
    def groups(self) -> tuple[Array, int]:
        """Whose rows are taken together for means: each client's, or all."""
        return (self.owner, len(self.tables)) if self.scale == "client" else (np.zeros_like(self.owner), 1)

    def numbers(self, name: str, what: str = "column") -> Array:
        """(N,) values of a column, nan where one is missing."""
        return np.concatenate([numbers(table[name], f"{what} '{name}' of {of}") for of, table in self.tables.items()])

    def texts(self, name: str) -> Array:
        """(N,) values of a column, None where one is missing."""
        return np.concatenate([texts(table[name]) for table in self.tables.values()])


def learn(rows: Stacked, target: str, features: Sequence[str], classification: bool) -> Preparation:
    """What becomes of every column; those that are the same in all training rows are named in a warning and left out."""
    _refuse_missing(rows.tables, [target] if rows.missing == "mean" else [*features, target])
    kinds = {name: _kind(rows.tables, name) for name in features}
    found = {name: _column(rows, name, kind) for name, kind in kinds.items()}
    columns = tuple(column for column in found.values() if column is not None)
    if constant := [name for name, column in found.items() if column is None]:
        if not columns:
            raise InputError("every column is constant in the training rows, expected one that varies; add columns")
        warnings.warn(
            f"constant in all training rows and left out: {listed(constant)}; without= says so beforehand",
            stacklevel=2,
        )
    own = tuple(rows.tables) if rows.scale == "client" else ()
    return Preparation(columns, _labels(rows, target) if classification else _quantity(rows, target), own)


def learn_anew(rows: Stacked, preparation: Preparation) -> Preparation:
    """The same columns, categories and labels, with the scales of these clients in place of those of others."""
    own: list[Column] = []
    for column in (*preparation.columns, preparation.target):
        filled = replace(rows, missing="mean" if column.fill else "error")
        _refuse_missing(rows.tables, [] if column.fill else [column.name])
        if isinstance(column, Numeric):
            own.append(_scaled(filled, column.name, *_moments(rows, rows.numbers(column.name), column.name)))
        else:
            own.append(_filled(filled, column.name, column.values, _codes(rows.texts(column.name), column.values)))
    return Preparation(tuple(own[:-1]), own[-1], tuple(rows.tables))


def _kind(tables: Mapping[str, Any], name: str) -> str:
    """Of all clients the same, but where a client has no value at all."""
    kinds = {client: kind_of(table[name], f"column '{name}' of {client}") for client, table in tables.items()}
    whose = {kind: client for client, kind in reversed(kinds.items()) if kind != EMPTY}
    if len(whose) > 1:
        raise InputError(
            f"column '{name}' holds numbers in {whose[NUMBER]} and texts in {whose[CATEGORY]}, expected one kind; convert, "
            "or leave it out with without="
        )
    return next(iter(whose), EMPTY)


def _column(rows: Stacked, name: str, kind: str) -> Column | None:
    """None for a column that says nothing."""
    if kind == EMPTY:
        return None
    return _numeric(rows, name) if kind == NUMBER else _category(rows, name)


def _numeric(rows: Stacked, name: str) -> Numeric | None:
    mean, std = _moments(rows, rows.numbers(name), name)
    return _scaled(rows, name, mean, std) if std.any() else None


def _scaled(rows: Stacked, name: str, mean: Array, std: Array) -> Numeric:
    """Where all values are the same, they become 0."""
    fill = tuple(mean.tolist()) if rows.missing == "mean" else ()
    if rows.scale == "none":
        return Numeric(name, fill=fill)
    return Numeric(name, tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist()), fill)


def _moments(rows: Stacked, values: Array, name: str) -> tuple[Array, Array]:
    """Mean and standard deviation of the training rows, (1,) or (K,); 0 exactly where they are the same."""
    owner, groups = rows.groups
    known = rows.train & ~np.isnan(values)
    owner, values = owner[known], values[known]
    count = _counted(rows, owner, name)
    mean = np.bincount(owner, values, groups) / count
    std = np.sqrt(np.bincount(owner, (values - mean[owner]) ** 2, groups) / count)
    return mean, np.where(std > 1e-12 * np.abs(mean), std, 0.0)


def _counted(rows: Stacked, owner: Array, name: str) -> Array:
    count = np.bincount(owner, minlength=rows.groups[1])
    if not count.all():
        who = list(rows.tables)[int(count.argmin())] if rows.scale == "client" else "any client"
        raise InputError(
            f"column '{name}' has no value in the training rows of {who}, expected at least one; leave the column out with "
            "without=" + (", or choose scale=pooled" if rows.scale == "client" else "")
        )
    return count


def _category(rows: Stacked, name: str) -> Category | None:
    found = rows.texts(name)
    values = sorted({value for value in found if value is not None})
    if len(values) > MOST_VALUES:
        raise InputError(
            f"column '{name}' has {len(values)} different texts, e.g. '{values[0]}', expected at most {MOST_VALUES} "
            "categories; leave it out with without=, or group them"
        )
    codes = _codes(found, values)
    return _filled(rows, name, values, codes) if len(np.unique(codes[rows.train & (codes >= 0)])) > 1 else None


def _codes(found: Array, values: Sequence[str]) -> Array:
    """(N,) places among the values, -1 where there is none."""
    codes: Array = pandas().Categorical(found, categories=[*values]).codes.astype(np.int64)
    return codes


def _filled(rows: Stacked, name: str, values: Sequence[str], codes: Array) -> Category:
    if rows.missing == "error":
        return Category(name, tuple(values))
    known = rows.train & (codes >= 0)
    owner, groups = rows.groups
    count = _counted(rows, owner[known], name)
    both = np.bincount(owner[known] * len(values) + codes[known], minlength=groups * len(values))
    return Category(name, tuple(values), tuple(map(tuple, (both.reshape(groups, -1) / count[:, None]).tolist())))


def _labels(rows: Stacked, target: str) -> Category:
    """Numbers in their order, other labels in that of the alphabet."""
    values = sorted(set(rows.texts(target)), key=_number_first)
    strange = next((value for value in values if _fraction(value)), None)
    if strange is not None or len(values) > max(2, len(rows.owner) / 2):
        found = (
            f"such as {strange}" if strange is not None else f"{len(values)} different ones in {len(rows.owner)} rows"
        )
        raise InputError(f"the target '{target}' has values {found}, expected classes; for numbers say task=regression")
    if len(values) < 2:
        raise InputError(f"the target '{target}' is {values[0]} in all rows, expected at least two classes; add rows")
    if len(values) > MANY_NUMBERS and not any(_number_first(value)[0] for value in values):
        warnings.warn(
            f"the target '{target}' has {len(values)} numbers as classes; for numbers say task=regression", stacklevel=2
        )
    return Category(target, tuple(values))


def _quantity(rows: Stacked, target: str) -> Numeric:
    """Standardised as the columns are."""
    mean, std = _moments(rows, rows.numbers(target, "the target"), target)
    if not std.any():
        raise InputError(f"the target '{target}' is the same in all training rows, expected one that varies; add rows")
    return replace(_scaled(rows, target, mean, std), fill=())


def _number_first(text: str) -> tuple[bool, float, str]:
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def _fraction(text: str) -> bool:
    is_text, value, _ = _number_first(text)
    return not is_text and not value.is_integer()


def _refuse_missing(tables: Mapping[str, Any], names: Sequence[str]) -> None:
    """Counts by column and client."""
    missing = {client: table[[*names]].isna().sum() for client, table in tables.items()}
    found = [
        f"{name}: " + ", ".join(f"{count[name]} in {client}" for client, count in missing.items() if count[name])
        for name in names
        if any(count[name] for count in missing.values())
    ]
    if found:
        remedy = "leave these rows out" if len(names) == 1 else "fill them in, leave rows out, or say missing=mean"
        raise InputError(f"values are missing, {listed(found, '; ')}; expected none; {remedy}")
