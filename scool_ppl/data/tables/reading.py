"""Tables from wherever they are: DataFrames, mappings of columns, files of csv, parquet and npz, folders of them."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scool_ppl.base.describe import natural
from scool_ppl.base.files import opened_npz
from scool_ppl.data.tables.columns import pandas, texts
from scool_ppl.errors import InputError, unknown

ENDINGS = (".csv", ".parquet", ".npz")
MISSING = ("", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "#N/A N/A")
"""Texts of a csv file that say that a value is missing."""


def read_tables(source: Any, client: str | None = None) -> dict[str, Any]:
    """A DataFrame for each client, by name; `client` is the column of one table that says whose a row is.

    source: see `Federation.from_tables`.
    """
    if client is not None:
        return _owned(source, client)
    if isinstance(source, Mapping):
        named = {str(name): table for name, table in source.items()}
    elif isinstance(source, str | os.PathLike):
        named = _by_stem(_folder(Path(source).expanduser()))
    elif isinstance(source, Sequence):
        if strange := [table for table in source if not isinstance(table, str | os.PathLike)]:
            raise InputError(
                f"the list of tables has a {type(strange[0]).__name__}, expected paths; give a mapping name -> table"
            )
        named = _by_stem([Path(path).expanduser() for path in source])
    else:
        read_table(source)
        raise InputError("one table was given, expected one for each client, or client= with the column that names it")
    if not named:
        raise InputError("no tables were given, expected one for each client")
    if isinstance(source, Mapping) and len(named) < len(source):
        twice = next(name for name in named if [str(each) for each in source].count(name) > 1)
        raise InputError(f"two tables are both named {twice}, expected a name a client; rename one")
    tables = {}
    for name, table in named.items():
        try:
            tables[name] = read_table(table)
        except InputError as error:
            named_already = isinstance(table, str | os.PathLike)
            raise InputError(str(error) if named_already else f"{name}: {error}") from error
        if len(tables[name]) == 0:
            raise InputError(f"the table of {name} has no rows, expected at least one; leave the client out")
    return tables


def _owned(source: Any, client: str) -> dict[str, Any]:
    """The rows of one table by their owner, in the order of the owners' names."""
    if isinstance(source, str | os.PathLike) and Path(source).expanduser().is_dir():
        raise InputError(
            f"client='{client}' was given for the folder '{source}', expected it for one table; the files of a folder are "
            "a client each: leave client= out"
        )
    frame = read_table(source)
    if not len(frame):
        raise InputError("the table has no rows, expected at least one for each client; correct the file")
    if client not in frame.columns:
        raise unknown("client column", client, frame.columns)
    if count := int(frame[client].isna().sum()):
        raise InputError(
            f"the client column '{client}' is empty in {count} of {len(frame)} rows; expected a name in each"
        )
    found = dict(iter(frame.drop(columns=client).groupby(texts(frame[client]))))
    return {name: found[name] for name in sorted(found, key=natural)}


def _folder(folder: Path) -> list[Path]:
    """The tables in it."""
    if folder.suffix.lower() in ENDINGS and not folder.is_dir():
        read_table(folder)
        raise InputError(f"'{folder}' is one table, expected client= with the column that names the client of a row")
    if not folder.is_dir():
        raise InputError(f"no file or folder '{folder}'; expected a folder of tables, one a client; correct the path")
    found = [path for path in folder.iterdir() if path.suffix.lower() in ENDINGS and not path.name.startswith(".")]
    if not found:
        raise InputError(f"the folder '{folder}' has no file that ends in {', '.join(ENDINGS)}; put one a client there")
    return sorted(found, key=lambda path: natural(path.stem))


def _by_stem(paths: Sequence[Path]) -> dict[str, Path]:
    named: dict[str, Path] = {}
    for path in paths:
        if path.stem in named:
            raise InputError(
                f"'{path}' and '{named[path.stem]}' are both named {path.stem}, expected one file a client"
            )
        named[path.stem] = path
    return named


def read_table(table: Any) -> Any:
    """One table as a DataFrame; see `Federation.from_tables` for what it may be."""
    frames = pandas()
    if isinstance(table, frames.DataFrame):
        found = table
    elif isinstance(table, str | os.PathLike):
        found = _file(Path(table).expanduser())
    elif hasattr(table, "to_pandas"):
        found = _converted(table)
    elif isinstance(table, Mapping):
        try:
            found = frames.DataFrame(dict(table))
        except (ValueError, TypeError) as error:
            raise InputError(f"the columns make no table ({error}); give columns of one length") from error
    else:
        raise _no_table(table)
    found = found.rename(columns=lambda name: str(name).strip())
    _check_names(list(found.columns))
    return found


def _converted(table: Any) -> Any:
    """A DataFrame of another library."""
    try:
        found = table.to_pandas()
    except ImportError as error:
        raise InputError(
            f"cannot convert a {type(table).__name__} without {error.name or 'pyarrow'}; pip install 'scool_ppl[tables]'"
        ) from error
    if not isinstance(found, pandas().DataFrame):
        raise _no_table(table)
    return found


def _no_table(table: Any) -> InputError:
    remedy = "collect it" if hasattr(table, "collect") else "convert it"
    return InputError(f"a table is a {type(table).__name__}, expected a DataFrame or the path of a file; {remedy}")


def _file(path: Path) -> Any:
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"'{path}' is no table, expected a file that ends in {', '.join(ENDINGS)}; convert it")
    if not path.is_file():
        raise InputError(f"no file '{path}'; expected a table, correct the path")
    frames = pandas()
    read = {".csv": _csv, ".parquet": frames.read_parquet, ".npz": _npz}[path.suffix.lower()]
    try:
        return read(path)
    except InputError:
        raise
    except ImportError as error:
        raise InputError(f"cannot read '{path}' without pyarrow; pip install 'scool_ppl[tables]'") from error
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read '{path}' ({error.reason}), expected text in UTF-8; save it as that") from error
    except (OSError, ValueError, KeyError, EOFError) as error:  # those of the parsers are ValueErrors
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"cannot read '{path}' ({reason}); expected a table with a line of column names") from error


def _csv(path: Path) -> Any:
    """Separated by what its first line has most of: commas, semicolons or tabs; then numbers may have a decimal comma."""
    with path.open(encoding="utf-8-sig") as file:
        first, *others = [file.readline() for _ in range(20)]
    separator = max(",;\t", key=first.count)
    _check_names([name.strip() for name in next(csv.reader([first], delimiter=separator), [])])
    decimal = "," if separator != "," and any(re.search(r"\d,\d", line) for line in others) else "."
    options = {"sep": separator, "decimal": decimal, "low_memory": False}
    found = pandas().read_csv(path, keep_default_na=False, na_values=MISSING, **options)
    if not isinstance(found.index, pandas().RangeIndex):
        raise InputError(
            f"rows of '{path}' have more values than its first line has names, expected as many; remove what is too much, "
            "such as a separator at the end of each line"
        )
    for column in found.columns[found.eq("None").any()]:  # among numbers it is a missing one, among texts a category
        known = found[column].where(found[column] != "None")
        numeric = pandas().to_numeric(known, errors="coerce")
        if numeric.notna().equals(known.notna()):
            found[column] = numeric
    return found


def _check_names(names: Sequence[str]) -> None:
    """Raises InputError where a name is there twice."""
    repeated = [name for place, name in enumerate(names) if name and name in names[:place]]
    if repeated:
        raise InputError(f"the table has the column '{repeated[0]}' twice, expected different names; rename one")


def _npz(path: Path) -> Any:
    """An array (N,) is a column of its name; of (N, D), D columns `name 0` to `name D-1`."""
    columns = {}
    with opened_npz(path, "write it with numpy.savez") as arrays:
        for name, array in arrays.items():
            if array.ndim == 1:
                columns[name] = array
            elif array.ndim == 2:
                columns |= {f"{name} {place}": column for place, column in enumerate(array.T)}
            else:
                raise InputError(
                    f"'{path}' has an array '{name}' of shape {array.shape}, expected columns (N,) or (N, D); use "
                    "Federation.from_arrays for images"
                )
    return pandas().DataFrame(columns)
