"""Which columns of tables are inputs; all clients must have them."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from scool_ppl.base.describe import listed
from scool_ppl.errors import InputError, unknown

NAMELESS = "Unnamed: "
"""What pandas calls columns without a name: as a rule the numbers of the rows, which were saved with them."""


def chosen_features(
    tables: Mapping[str, Any],
    needed: Mapping[str, str],
    features: Sequence[str] | None = None,
    without: Collection[str] = (),
) -> list[str]:
    """The features, by default all columns of the first table but those that are needed for something else, and `without`.

    needed: what a column is for -> its name.
    """
    first = next(iter(tables))
    columns = dict.fromkeys(tables[first].columns)
    everywhere = {name for table in tables.values() for name in table.columns}
    for use, name in needed.items():
        if name not in everywhere:
            raise unknown(f"{use} column", name, columns)
        if lacking := [client for client, table in tables.items() if name not in table.columns]:
            raise InputError(
                f"no {use} column '{name}' in the table of {listed(lacking)}, expected it in every table; add it, or "
                "leave the table out"
            )
    if unheard := [name for name in without if name not in everywhere]:
        raise unknown("column to leave out", unheard[0], columns)
    if features is None:
        chosen = _others(columns, {*needed.values(), *without})
    elif without:
        raise InputError("features= and without= were both given, expected one of them; drop one")
    else:
        chosen = _named(features, columns, needed)
    if not chosen or len(set(chosen)) < len(chosen):
        raise InputError(f"features are {chosen}, expected at least one column and each once; correct features=")
    ignored = everywhere - columns.keys() if features is not None else {*without}
    _check_all(tables, {*chosen, *needed.values()}, columns, ignored)
    return chosen


def _others(columns: Collection[str], used: Collection[str]) -> list[str]:
    nameless = [name for name in columns if name.startswith(NAMELESS) and name not in used]
    if nameless:
        warnings.warn(f"columns without a name are left out: {listed(nameless)}", stacklevel=2)
    return [name for name in columns if name not in {*used, *nameless}]


def _named(features: Sequence[str], columns: Collection[str], needed: Mapping[str, str]) -> list[str]:
    if absent := [name for name in features if name not in columns]:
        raise unknown("feature", absent[0], columns)
    if twice := [(use, name) for use, name in needed.items() if name in features]:
        raise InputError(f"'{twice[0][1]}' is a feature and the {twice[0][0]}, expected one of both; drop one")
    return [*features]


def _check_all(
    tables: Mapping[str, Any], expected: Collection[str], columns: Collection[str], ignored: Collection[str]
) -> None:
    """Every table has the columns that are expected, and none that the first has not."""
    first, *others = tables
    for client in others:
        found = {*tables[client].columns}
        lacking = sorted({*expected} - found)
        extra = sorted(name for name in found - {*columns, *ignored} if not name.startswith(NAMELESS))
        if lacking or extra:
            told = [f"lacks {listed(lacking)}"] * bool(lacking) + [f"has also {listed(extra)}"] * bool(extra)
            raise InputError(
                f"the table of {client} {' and '.join(told)}, expected the columns of {first}; rename them, name those "
                "that all have with features=, or leave some out with without="
            )
