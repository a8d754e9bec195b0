"""Tables from wherever they are: DataFrames, mappings of columns, files of csv, parquet and npz, folders of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scool_ppl.data.tables.columns import pandas
from scool_ppl.errors import InputError

ENDINGS = (".csv", ".parquet", ".npz")


def read_table(table: Any) -> Any:
    """One table as a DataFrame; see `Federation.from_tables` for what it may be."""
    frames = pandas()
    if isinstance(table, frames.DataFrame):
        found = table
    elif isinstance(table, str | os.PathLike):
        found = _file(Path(table).expanduser())
    elif isinstance(table, Mapping):
        try:
            found = frames.DataFrame(dict(table))
        except (ValueError, TypeError) as error:
            raise InputError(f"the columns make no table ({error}); give columns of one length") from error
    else:
        raise InputError(f"a table is a {type(table).__name__}, expected a DataFrame or the path of a file; convert it")
    found = found.rename(columns=str)
    if repeated := sorted({name for name in found.columns if list(found.columns).count(name) > 1}):
        raise InputError(f"the table has the column '{repeated[0]}' twice, expected different names; rename one")
    return found


def _file(path: Path) -> Any:
    if path.suffix not in ENDINGS:
        raise InputError(f"'{path}' is no table, expected a file that ends in {', '.join(ENDINGS)}; convert it")
    if not path.is_file():
        raise InputError(f"no file '{path}'; expected a table, correct the path")
    frames = pandas()
    read = {".csv": partial(frames.read_csv, low_memory=False), ".parquet": frames.read_parquet, ".npz": _npz}[
        path.suffix
    ]
    try:
        return read(path)
    except InputError:
        raise
    except (OSError, ValueError, KeyError, EOFError, ImportError) as error:  # those of the parsers are ValueErrors
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"cannot read '{path}' ({reason}); expected a table with a line of column names") from error


def _npz(path: Path) -> Any:
    """An array (N,) is a column of its name; of (N, D), D columns `name 0` to `name D-1`."""
    columns = {}
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            array = arrays[name]
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
