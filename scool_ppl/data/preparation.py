"""Preparation: how the columns of a table become inputs of a network, as plain data that a file can hold."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from scool_ppl.base.codec import decode, encode
from scool_ppl.data.tables.columns import as_text, numbers, texts
from scool_ppl.data.tables.reading import read_table
from scool_ppl.errors import InputError, unknown


@dataclass(frozen=True)
class Numeric:
    """A column of numbers, which becomes one input (x - mean) / std.

    mean, std: one value for all clients, or one for each of `Preparation.clients`. fill: so, what stands for a missing
    value; () where missing values are refused.
    """

    name: str
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    fill: tuple[float, ...] = ()


@dataclass(frozen=True)
class Category:
    """A column of texts, which becomes an input for each of its values: 1 where the row has it, else 0.

    fill: the shares of the values, for all clients or for each, which stand for a missing one; () where that is refused.
    """

    name: str
    values: tuple[str, ...]
    fill: tuple[tuple[float, ...], ...] = ()


Column = Numeric | Category


@dataclass(frozen=True)
class Scaling:
    """How arrays (N, C, ...) become inputs: (x - mean_c) / std_c; of_bytes: images, of which only bytes were scaled."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    of_bytes: bool


@dataclass(frozen=True)
class Preparation:
    """How rows of a table become inputs (N, D) float32, and what the targets mean.

    columns: in the order of the inputs; none where the inputs are no table. target: a Category of classification, whose
    value c is the name of class c, without values where these have no names; a Numeric of regression, by whose mean and
    std the targets are standardised. clients: those whose own mean, std and fill the columns have; () where one is for
    all. scaling: of inputs that are no table, None where they are as the user's own.
    """

    columns: tuple[Column, ...]
    target: Column
    clients: tuple[str, ...] = ()
    scaling: Scaling | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes in their order; () in regression."""
        return self.target.values if isinstance(self.target, Category) else ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The D inputs: a column of numbers by its name, a category by `column=value`."""
        return tuple(
            name
            for column in self.columns
            for name in (
                [column.name] if isinstance(column, Numeric) else [f"{column.name}={value}" for value in column.values]
            )
        )

    def transform(self, table: Any, client: str | None = None) -> Tensor:
        """Inputs (N, D) float32 of a table: a DataFrame, a mapping of columns, or the path of a csv, parquet or npz file.

        client: whose scale is taken, where each has its own. Columns that are not needed are left alone.
        """
        if not self.columns:
            raise InputError("the inputs of this federation are no table, expected inputs as arrays; give an .npz file")
        frame, place = read_table(table), self._place(client)
        if missing := [column.name for column in self.columns if column.name not in frame.columns]:
            raise InputError(f"the table has no column {', '.join(map(repr, missing))}; add what the training data had")
        if len(frame) == 0:
            raise InputError("the table has no rows, expected at least one")
        who = "the table" if client is None else client
        blocks = [_block(column, frame[column.name], place, who) for column in self.columns]
        return torch.from_numpy(np.concatenate(blocks, 1, dtype=np.float32, casting="same_kind"))

    def of(self, client: str) -> Self:
        """That of one client, which has its own scale alone."""
        if not self.clients:
            return self
        place = self._place(client)
        columns = tuple(_of(column, place) for column in self.columns)
        return replace(self, columns=columns, target=_of(self.target, place), clients=())

    def scale(self, client: str | None = None) -> tuple[Tensor, Tensor]:
        """mean and std (D,) in float64 by which each of the inputs of a table is standardised; 0 and 1 of categories."""
        place = self._place(client)
        each = [
            [(_at(column.mean, place), _at(column.std, place))]
            if isinstance(column, Numeric)
            else [(0.0, 1.0)] * len(column.values)
            for column in self.columns
        ]
        mean, std = torch.tensor([pair for pairs in each for pair in pairs], dtype=torch.float64).T
        return mean, std

    def encode_target(self, table: Any, client: str | None = None) -> Tensor:
        """Targets (N,): the number of each row's class, long, or standardised numbers, float32."""
        frame, target = read_table(table), self.target
        who = f"the target '{target.name}' of {client or 'the table'}"
        if target.name not in frame.columns:
            raise InputError(f"{who} is missing, expected a column of that name; add it")
        series = frame[target.name]
        if count := int(series.isna().sum()):
            raise InputError(f"{who} is missing in {count} of {len(series)} rows; leave these rows out")
        if isinstance(target, Category):
            return torch.from_numpy(_codes(target, texts(series), who))
        place = self._place(client)
        return torch.from_numpy((numbers(series, who) - _at(target.mean, place)) / _at(target.std, place)).float()

    def decode_target(self, predicted: Tensor, client: str | None = None) -> Tensor:
        """Predictions of regression in the units of the table; others as they are."""
        if isinstance(self.target, Category):
            return predicted
        place = self._place(client)
        return predicted * _at(self.target.std, place) + _at(self.target.mean, place)

    def joined(self, other: Preparation) -> Preparation | None:
        """For the clients of both; None where they would make other inputs or labels of the same row."""
        if self == other:
            return self
        pairs = list(zip((*self.columns, self.target), (*other.columns, other.target), strict=False))
        both = [_both(one, two) for one, two in pairs]
        if not (self.clients and other.clients) or len(self.columns) != len(other.columns) or None in both:
            return None
        *columns, target = (column for column in both if column is not None)
        return Preparation(tuple(columns), target, self.clients + other.clients)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(encode(self, {}, "preparation"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse."""
        try:
            value = json.loads(text)
        except ValueError as error:
            raise InputError(
                f"the preparation is no JSON ({error}), expected what to_json writes; write it anew"
            ) from None
        found: Self = decode(cls, value, {}, "preparation")
        return found

    def _place(self, client: str | None) -> int:
        if not self.clients:
            return 0
        if client is None:
            raise InputError(
                f"every client has a scale of its own, expected the name of one of them: {', '.join(self.clients)}"
            )
        if client not in self.clients:
            raise unknown("client", client, self.clients)
        return self.clients.index(client)


def _both(one: Column, two: Column) -> Column | None:
    """A column with the scales of the clients of both."""
    if one.name != two.name or bool(one.fill) != bool(two.fill):
        return None
    if isinstance(one, Numeric) and isinstance(two, Numeric):
        return Numeric(one.name, one.mean + two.mean, one.std + two.std, one.fill + two.fill)
    if isinstance(one, Category) and isinstance(two, Category) and one.values == two.values:
        return Category(one.name, one.values, one.fill + two.fill)
    return None


def _at(values: tuple[float, ...], place: int) -> float:
    return values[place] if len(values) > 1 else values[0]


def _of(column: Column, place: int) -> Column:
    """A column with one of its values for each client."""
    own: dict[str, Any] = {
        name: values[place : place + 1] for name, values in _by_client(column).items() if len(values) > 1
    }
    return replace(column, **own)


def _by_client(column: Column) -> dict[str, tuple[Any, ...]]:
    if isinstance(column, Numeric):
        return {"mean": column.mean, "std": column.std, "fill": column.fill}
    return {"fill": column.fill}


def _block(column: Column, series: Any, place: int, who: str) -> np.ndarray[Any, Any]:
    """The inputs of one column, (N, 1) or (N, values)."""
    told = f"column '{column.name}' of {who}"
    missing = series.isna().to_numpy()
    if missing.any() and not column.fill:
        raise InputError(
            f"{told} has {int(missing.sum())} of {len(missing)} values missing, expected all; fill them in, leave the rows "
            "out, or train with missing=mean"
        )
    if isinstance(column, Numeric):
        found = numbers(series, told)
        if missing.any():
            found = np.where(missing, _at(column.fill, place), found)
        return ((found - _at(column.mean, place)) / _at(column.std, place))[:, None]
    block = np.zeros((len(missing), len(column.values)))
    block[np.flatnonzero(~missing), _codes(column, texts(series)[~missing], told)] = 1
    if missing.any():
        block[missing] = column.fill[place if len(column.fill) > 1 else 0]
    return block


def _codes(column: Category, found: np.ndarray[Any, Any], who: str) -> np.ndarray[Any, Any]:
    """(N,) int64 places of texts among the values of a column."""
    place = {value: code for code, value in enumerate(column.values)}
    if strange := sorted(set(found) - set(place)):
        raise InputError(
            f"{who} has '{strange[0]}', expected one of {', '.join(column.values)}; correct it, or leave these rows out"
        )
    return np.array([place[text] for text in found], dtype=np.int64)


def with_labels(names: tuple[str, ...] = (), *, scaling: Scaling | None = None) -> Preparation:
    """Of inputs that are no table: the names of the classes, where they have names, and how the inputs were scaled."""
    return Preparation((), Category("label", tuple(as_text(name) for name in names)), scaling=scaling)
