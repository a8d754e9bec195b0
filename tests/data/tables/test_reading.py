"""Tables from files of every kind are the same tables."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch

from scool_ppl import Federation
from scool_ppl.data.tables.reading import read_table, read_tables
from tests.helpers.hospitals import write_hospitals
from tests.helpers.refusals import refuses


def test_an_npz_file_has_columns(tmp_path: Path) -> None:
    x = np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "a.npz", x=x, y=["a", "b", "a"])
    found = read_table(tmp_path / "a.npz")
    assert list(found.columns) == ["x 0", "x 1", "y"]
    np.testing.assert_array_equal(found[["x 0", "x 1"]].to_numpy(), x)


@pytest.mark.parametrize(("separator", "decimal"), [(",", "."), (";", ","), (";", "."), ("\t", ","), ("\t", ".")])
def test_the_separator_of_a_csv_file_is_found(separator: str, decimal: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": [61, 33], "lactate": [1.58, 2.0], "ward": ["a, b", "c"]})
    frame.to_csv(tmp_path / "a.CSV", sep=separator, decimal=decimal, index=False, encoding="utf-8-sig")
    pd.testing.assert_frame_equal(read_table(tmp_path / "a.CSV"), frame)


def test_tables_of_others_are_made_into_those_of_pandas() -> None:
    frame = pd.DataFrame({"age": [61, 33], "ward": ["a", "b"]})
    pd.testing.assert_frame_equal(read_table(pyarrow.Table.from_pandas(frame)), frame)


def test_what_others_cannot_convert_is_one_line() -> None:
    class Other:
        def to_pandas(self) -> Any:
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")

    class Column:
        def to_pandas(self) -> Any:
            return pd.Series([1, 2])

    class Query:
        def collect(self) -> Any: ...

    refuses(lambda: read_table(Other()), "cannot convert a Other without pyarrow; pip install 'scool_ppl[tables]'")
    refuses(lambda: read_table(Column()), "a table is a Column, expected a DataFrame")
    refuses(lambda: read_table(Query()), "a table is a Query, expected a DataFrame or the path of a file; collect it")


def test_tables_of_polars_are_those_of_pandas() -> None:
    """Numbers, texts, categories, truth values, and what is missing among them."""
    polars = pytest.importorskip("polars", reason="polars is not installed")
    one, other = (
        {
            "age": [61.5, None, 33.0, 40.0] * 5,
            "ward": wards * 5,
            "visits": [3, 1, None, 2] * 5,
            "smokes": [True, None, False, True] * 5,
            "died": ["yes", "no", "no", "yes"] * 5,
        }
        for wards in (["a", "b", None, "c"], ["b", "b", "a", None])
    )
    expected = Federation.from_tables(
        {"north": pd.DataFrame(one), "south": pd.DataFrame(other)}, "died", missing="mean", validation=0.25, test=0.25
    )
    kinds = {"age": polars.Float32, "ward": polars.Categorical, "visits": polars.Int16}
    for schema in ({}, kinds):
        frames = {
            name: polars.DataFrame(table, schema_overrides=schema) for name, table in (("north", one), ("south", other))
        }
        found = Federation.from_tables(frames, "died", missing="mean", validation=0.25, test=0.25)
        torch.testing.assert_close(found.inputs, expected.inputs)
        assert torch.equal(found.targets, expected.targets)
    both = polars.concat([frame.with_columns(who=polars.lit(name)) for name, frame in frames.items()])
    whole = Federation.from_tables(both, "died", client="who", missing="mean", validation=0.25, test=0.25)
    torch.testing.assert_close(whole.inputs, expected.inputs)
    refuses(
        lambda: read_table(both.lazy()), "a table is a LazyFrame, expected a DataFrame or the path of a file; collect"
    )
    refuses(lambda: read_table(both["age"]), "a table is a Series")


def test_the_rows_of_one_table_are_their_owners() -> None:
    """Spaces around a name make no other client; numbers are names, too."""
    frame = pd.DataFrame({"who": ["b 10", "b 2", "b 10 ", "a"], "x": [1, 2, 3, 4]})
    found = read_tables(frame, "who")
    assert {name: table["x"].tolist() for name, table in found.items()} == {"a": [4], "b 2": [2], "b 10": [1, 3]}
    assert [*read_tables(frame.assign(who=[10, 9, 9, 1]), "who")] == ["1", "9", "10"]
    assert [*read_tables(frame.assign(who=pd.Categorical([10, 9, 9, 1])), "who")] == ["1", "9", "10"]
    refuses(
        lambda: read_tables(frame.assign(who=["a", None, "b", "c"]), "who"), "'who' is empty in 1 of 4 rows; expected"
    )


def test_none_is_a_category_among_texts_and_missing_among_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("alcohol,age,smokes\nNone,61,NA\nlight,None,yes\nNone,50,\n")
    found = read_table(tmp_path / "a.csv")
    assert found["alcohol"].tolist() == ["None", "light", "None"]
    assert found["age"].isna().tolist() == [False, True, False]
    assert found["age"].sum() == 111
    assert found["smokes"].isna().tolist() == [True, False, True]


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.csv").write_text('a,b\n1,2\n"3')
    (tmp_path / "latin.csv").write_text("a,b\n1,grün", encoding="latin-1")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "broken.parquet").write_text("PAR")
    np.savez(tmp_path / "images.npz", images=np.zeros((2, 3, 4, 4)))
    (tmp_path / "twice.csv").write_text("age,died,died\n1,no,yes\n")
    (tmp_path / "longer.csv").write_text("died,weight,height\nno,78,156,\nyes,70,160,\n")
    (tmp_path / "names.csv").write_text("who,x\n")
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: read_table(tmp_path / "broken.csv"), "cannot read"),
        (lambda: read_table(tmp_path / "latin.csv"), "expected text in UTF-8"),
        (lambda: read_table(tmp_path / "empty.csv"), "empty.csv' (No columns"),
        (lambda: read_table(tmp_path / "broken.parquet"), "cannot read"),
        (lambda: read_table(tmp_path / "images.npz"), "an array 'images' of shape (2, 3, 4, 4), expected columns"),
        (lambda: read_table(frame), "the table has the column 'a' twice"),
        (lambda: read_table(tmp_path / "twice.csv"), "the table has the column 'died' twice"),
        (lambda: read_table(tmp_path / "longer.csv"), "more values than its first line has names"),
        (lambda: read_tables(tmp_path / "names.csv", "who"), "the table has no rows"),
        (lambda: read_table({"a": [1], "b": [1, 2]}), "the columns make no table"),
    ]
    for call, words in cases:
        refuses(call, words)


def test_a_missing_extra_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_hospitals(tmp_path, ending=".parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refuses(lambda: read_table(tmp_path / "hospital 1.parquet"), "without pyarrow; pip install 'scool_ppl[tables]'")
    monkeypatch.setitem(sys.modules, "pandas", None)
    refuses(lambda: read_table(tmp_path / "hospital 1.parquet"), "tables need pandas, which cannot be imported (")
    refuses(lambda: read_table(tmp_path / "hospital 1.parquet"), "; pip install 'scool_ppl[tables]'")
