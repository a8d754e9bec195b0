"""The result store: cells come back as they were put, of the same request only, and a damaged file is kept."""

from __future__ import annotations

import pytest

from scool_ppl.errors import InputError
from scool_ppl.reproduce.experiment import Column
from scool_ppl.reproduce.scales import SMOKE
from scool_ppl.reproduce.store import Store, as_stored
from tests.helpers.experiments import COLUMN, LOCAL, record, tiny


def test_a_cell_of_another_request_counts_as_missing(finished):
    changed = Column("tiny", COLUMN.federation, SMOKE.__class__(rounds=3, warmup_epochs=1, executor="stacked"))
    cell = tiny(columns=(changed,)).cell(changed, LOCAL, {}, 0)
    assert cell.key in finished.store.records
    assert finished.store.get(cell) is None


def test_two_commands_keep_each_others_cells(tmp_path):
    experiment = tiny()
    one, other = (Store(tmp_path / "s.json") for _ in range(2))
    first, second = (experiment.cell(COLUMN, LOCAL, {}, seed) for seed in (0, 1))
    one.put(first, record((0.1, 0.1), (0.1, 0.1)))
    other.put(second, record((0.2, 0.2), (0.2, 0.2)))
    assert set(Store(one.path).records) == {first.key, second.key}


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "{"])
def test_a_damaged_store_is_refused_and_kept(tmp_path, content):
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"s\.json"):
        Store(path)
    assert path.read_text() == content


def test_a_cell_comes_back_as_it_was_put(tmp_path):
    store = Store(tmp_path / "s.json")
    cell = tiny().cell(COLUMN, LOCAL, {"clip": 1.0}, 3)
    assert store.get(cell) is None
    numbers = record((0.1, None), (0.25, 1.0))
    store.put(cell, numbers)
    found = Store(store.path).get(cell)
    assert found == {**numbers, "request": as_stored(cell.request)}
    assert len(store.path.read_text().splitlines()) == 3, "a line a cell"
