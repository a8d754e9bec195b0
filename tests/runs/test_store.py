"""The result store: cells come back as they were put, of the same request only, and a damaged file is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scool_ppl.errors import InputError
from scool_ppl.runs.store import Store, as_stored


class Cell(NamedTuple):
    key: str
    request: dict[str, Any]


def test_a_cell_of_another_request_counts_as_missing(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.json")
    store.put(Cell("a", {"rounds": 2}), {"accuracy": 0.5})
    assert store.get(Cell("a", {"rounds": 2})) is not None
    assert store.get(Cell("a", {"rounds": 3})) is None


def test_two_commands_keep_each_others_cells(tmp_path: Path) -> None:
    one, other = (Store(tmp_path / "s.json") for _ in range(2))
    one.put(Cell("a", {}), {})
    other.put(Cell("b", {}), {})
    assert set(Store(one.path).records) == {"a", "b"}


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "{"])
def test_a_damaged_store_is_refused_and_kept(tmp_path: Path, content: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"s\.json"):
        Store(path)
    assert path.read_text() == content


def test_a_cell_comes_back_as_it_was_put(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.json")
    cell = Cell("a | seed 3", {"hyperparameters": {"clip": 1.0}, "rounds": (1, 2)})
    assert store.get(cell) is None
    numbers = {"test": [0.1, None], "loss": {"mean": 0.25}}
    store.put(cell, numbers)
    found = Store(store.path).get(cell)
    assert found == {**numbers, "request": as_stored(cell.request)}
    assert len(store.path.read_text().splitlines()) == 3, "a line a cell"
