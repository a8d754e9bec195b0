"""A federation of tables: read, split, prepared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import torch

from scool_ppl.base.arguments import check_names
from scool_ppl.base.arrays import ArrayLike
from scool_ppl.base.describe import listed
from scool_ppl.data.checks import warn_of_clients
from scool_ppl.data.federation import Federation
from scool_ppl.data.preparation import Numeric, Preparation
from scool_ppl.data.reading import SPLITS, check_fractions, fractions
from scool_ppl.data.tables.columns import texts
from scool_ppl.data.tables.features import chosen_features
from scool_ppl.data.tables.learning import Array, Missing, Scale, Stacked, learn, learn_anew
from scool_ppl.data.tables.reading import read_tables
from scool_ppl.errors import InputError, unknown
from scool_ppl.tasks.base import Task
from scool_ppl.tasks.categorical import Classification
from scool_ppl.tasks.regression import Regression

_TASKS = (Classification.name, Regression.name)


def made(
    source: Any,
    *,
    target: str | None,
    features: Sequence[str] | None,
    without: Sequence[str],
    client: str | None,
    split: str | None,
    groups: ArrayLike | Mapping[str, int] | str | None,
    validation: float,
    test: float,
    seed: int,
    task: Task | str | None,
    missing: Missing,
    scale: Scale,
    truth: ArrayLike | None,
    preparation: Preparation | None,
) -> Federation:
    """See `Federation.from_tables`."""
    for what, value, known in (("missing", missing, get_args(Missing)), ("scale", scale, get_args(Scale))):
        if value not in known:
            raise unknown(f"{what} value", str(value), known)
    check_names("features", features or [])
    check_names("without", without)
    if preparation is not None:
        target, features, without = preparation.target.name, [column.name for column in preparation.columns], ()
    if task is None:
        numbers = preparation is not None and isinstance(preparation.target, Numeric)
        task = Regression.name if numbers else Classification.name
    if target is None:
        raise InputError("no target was named, expected the column that is to be predicted; say target=")
    tables = read_tables(source, client)
    uses = {"target": target, "split": split, "group": groups if isinstance(groups, str) else None}
    needed = {use: name for use, name in uses.items() if name is not None}
    chosen = chosen_features(tables, needed, features, without)
    owner = np.repeat(np.arange(len(tables)), [len(table) for table in tables.values()])
    codes = _by_fractions(tables, validation, test, seed) if split is None else _by_column(tables, split)
    if preparation is None:
        rows = Stacked(tables, owner, codes == 0, scale, missing)
        preparation = learn(rows, target, chosen, _classification(task))
    elif preparation.clients and not {*tables} <= {*preparation.clients}:
        preparation = learn_anew(Stacked(tables, owner, codes == 0, "client", "error"), preparation)
    labels = len(preparation.labels)
    federation = Federation.from_arrays(
        torch.cat([preparation.transform(table, name) for name, table in tables.items()]),
        torch.cat([preparation.encode_target(table, name) for name, table in tables.items()]),
        owner,
        split=codes,
        names=list(tables),
        groups=_groups(tables, groups),
        truth=truth,
        task=Classification(labels) if labels and isinstance(task, str) else task,
        preparation=preparation,
    )
    warn_of_clients(federation)
    return federation


def _classification(task: Task | str) -> bool:
    """Labels, or else numbers."""
    if not isinstance(task, str):
        return task.num_classes > 0
    name, _, options = task.partition(":")
    if name not in _TASKS or (name == Classification.name and options):
        raise unknown("task of a table", task, _TASKS)
    return name == Classification.name


def _by_fractions(tables: Mapping[str, Any], validation: float, test: float, seed: int) -> Array:
    """(N,) the split of each row, by seeded fractions of every client's rows."""
    check_fractions(validation, test)
    if small := [f"{name} ({len(table)})" for name, table in tables.items() if 0 < len(table) * validation <= 0.5]:
        raise InputError(
            f"too few rows for validation={validation}: {listed(small)}; expected at least {int(0.5 / validation) + 1} a "
            "client; leave these clients out, or say validation=0 for models that need none"
        )
    found = []
    for name, table in tables.items():
        codes = np.zeros(len(table), dtype=np.int64)
        for code, rows in enumerate(fractions(torch.arange(len(table)), validation, test, seed, name)):
            codes[rows.numpy()] = code
        found.append(codes)
    return np.concatenate(found)


def _by_column(tables: Mapping[str, Any], split: str) -> Array:
    """(N,) the split of each row as a column says it, in words or as 0, 1, 2."""
    code = {**{name: code for code, name in enumerate(SPLITS)}, **{str(code): code for code in range(len(SPLITS))}}
    found = np.concatenate([texts(table[split]) for table in tables.values()])
    if strange := [str(value) for value in found if value not in code]:
        raise InputError(
            f"the split column '{split}' holds '{strange[0]}', expected one of {', '.join(SPLITS)}; correct it"
        )
    return np.array([code[value] for value in found], dtype=np.int64)


def _groups(tables: Mapping[str, Any], groups: ArrayLike | Mapping[str, int] | str | None) -> ArrayLike | None:
    """The group of each client: given in the order of the clients or by their names, or the one value of a column."""
    if isinstance(groups, Mapping):
        if lacking := [name for name in tables if name not in groups]:
            raise InputError(f"groups do not name {lacking[0]}, expected the group of every client; add it")
        return [groups[name] for name in tables]
    if not isinstance(groups, str):
        return groups
    found = []
    for name, table in tables.items():
        values = set(texts(table[groups]))
        if len(values) != 1:
            raise InputError(f"the group column '{groups}' has {len(values)} values in {name}, expected one a client")
        found.append(str(values.pop()))
    known = sorted(set(found))
    return [known.index(value) for value in found]
