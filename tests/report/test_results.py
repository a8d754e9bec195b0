"""The report of an experiment: from stores that are in the repository, without running a cell."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from scool_ppl.errors import InputError
from scool_ppl.report.results import results_in_words, results_page
from scool_ppl.reproduce.catalogue import experiments_folder
from scool_ppl.reproduce.experiment import Method
from scool_ppl.runs.store import Store
from tests.helpers.experiments import EXTRAS, filled, record, tiny

RESULTS = experiments_folder() / "results"


def test_a_table_with_its_figures() -> None:
    page = results_page(RESULTS / "scool_fig7-small.json")
    assert page.count("data:image/png;base64") == 1
    assert 'alt="budget"' in page
    assert "runs are in the store" in page


def test_who_is_best_is_who_the_cells_say(tmp_path: Path) -> None:
    experiment = tiny(
        methods=(Method("Local", "local", deployed="mixed"), Method("SBM", "scool_sbm", deployed="mixed"))
    )
    numbers = [((0.5, 0.7), (0.0, 0.0)), ((0.7, 0.9), (0.0, 0.0)), ((0.9, 0.9), (1.0, 1.0)), ((0.5, 0.3), (1.0, 1.0))]
    results = filled(Store(tmp_path / "tiny.json"), experiment, *(record(*one, **EXTRAS) for one in numbers))
    first, best = results_in_words(results, [], [])
    assert first == "2 methods, 1 federation, 2 seeds; 4 runs are in the store."
    assert (
        best == "On tiny, Local has the highest mean accuracy, 0.750."
    )  # cells go seed by seed: of 0.6 and 0.9, against 0.8 and 0.4
    compact = results.shown_as(replace(experiment, compact=True))
    rows = [["One", "2.5", "7"], ["Other", "-", "1"], ["Third", "1.25 (somewhere)", "9"]]
    assert list(results_in_words(compact, ["method", "regret, %", "more"], rows))[1:] == [
        "Over all federations Third is lowest in regret, %: 1.25."
    ]


def test_a_store_of_nobody_and_one_with_missing_cells_are_refused(tmp_path: Path) -> None:
    shutil.copy(RESULTS / "scool_table2-small.json", tmp_path / "mine-small.json")
    with pytest.raises(InputError, match=r"not named EXPERIMENT-SCALE\.json"):
        results_page(tmp_path / "mine-small.json")
    cells = json.loads((RESULTS / "scool_table2-small.json").read_text())
    cells.pop(next(iter(cells)))
    (tmp_path / "scool_table2-small.json").write_text(json.dumps(cells))
    with pytest.raises(InputError, match="is missing"):
        results_page(tmp_path / "scool_table2-small.json")
