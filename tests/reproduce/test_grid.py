"""Filling the store: candidates once, the chosen ones for every seed, nothing twice, the same numbers in any process."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import NoReturn

import pytest

from scool_ppl.errors import InputError, RunError
from scool_ppl.reproduce import reproduce
from scool_ppl.reproduce.experiment import Cell, Method
from scool_ppl.reproduce.grid import _begin, _run_all
from scool_ppl.runs.store import Store
from tests.helpers.experiments import COLUMN, LOCAL, SBM, tiny, without_times


def test_the_grid_runs_the_candidates_once_and_the_chosen_ones_for_every_seed(finished):
    keys = set(finished.store.records)
    chosen = "scool_sbm" if finished.chosen(COLUMN, SBM) == {} else "scool_sbm n_eff=2.0"
    assert keys == {
        "tiny | scool_sbm | seed 100",
        "tiny | scool_sbm n_eff=2.0 | seed 100",
        *(f"tiny | {model} | seed {seed}" for model in ("local", chosen) for seed in (0, 1)),
    }


def test_what_candidates_do_on_test_data_is_not_kept(finished):
    for key, cell in finished.store.records.items():
        assert ("test" in cell) == ("seed 100" not in key)
        assert cell["validation"] is not None


def test_a_deleted_cell_comes_back_with_the_same_numbers(finished, tmp_path):
    path = tmp_path / "tiny.json"
    path.write_text(finished.store.path.read_text())
    before = without_times(Store(path))
    content = json.loads(path.read_text())
    del content["tiny | local | seed 1"]
    path.write_text(json.dumps(content))
    again = reproduce(finished.experiment, Store(path), progress=False)
    assert without_times(again.store) == before
    assert without_times(Store(path)) == before


def test_what_is_stored_is_not_run_again(finished, monkeypatch):
    monkeypatch.setattr("scool_ppl.reproduce.grid.run_cell", lambda *_, **__: pytest.fail("ran a stored cell"))
    reproduce(finished.experiment, Store(finished.store.path), progress=False)


def test_a_cell_that_fails_is_named_and_the_others_stay(tmp_path):
    broken = Method("broken", "scool_sbm", ({"n_eff": -1.0},))
    store = Store(tmp_path / "s.json")
    with pytest.raises(InputError, match=r"cell 'tiny \| scool_sbm n_eff=-1.0 \| seed 0'"):
        reproduce(tiny(methods=(LOCAL, broken), seeds=(0,)), store, progress=False)
    assert list(Store(store.path).records) == ["tiny | local | seed 0"]


@pytest.mark.slow
def test_cells_in_other_processes_give_the_same_numbers(tmp_path, monkeypatch):
    """Those of the candidates and those of the table. One process stands for two, each takes seconds to start."""
    monkeypatch.setattr("scool_ppl.reproduce.grid.ProcessPoolExecutor", lambda _, **o: ProcessPoolExecutor(1, **o))
    rates = Method("Local", "local", ({"--learning-rate": 0.1}, {"--learning-rate": 0.05}))
    experiment = tiny(methods=(rates,), graphs=(2,))
    one, two = (
        reproduce(experiment, Store(tmp_path / f"{jobs}.json"), jobs=jobs, progress=False).store for jobs in (1, 2)
    )
    assert len(one.records) == 4
    assert without_times(one) == without_times(two)


def _killed(_: Cell) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_is_killed_is_one_line():
    cells = list(tiny(methods=(LOCAL,)).cells(lambda *_: {}))
    told = r"cell 'tiny .* was killed, .* fewer --jobs; the cells before it are stored"
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=fork) as pool, pytest.raises(RunError, match=told):
        list(_run_all(cells, _killed, pool))


_keeping: list[int] = []


def _keeps() -> bool:
    return _keeping == [os.getpid()]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_processes_keep_their_memory_as_the_command_does(monkeypatch):
    """What malloc is told holds for one process."""
    monkeypatch.setattr("scool_ppl.reproduce.grid.keep_memory", lambda: _keeping.append(os.getpid()))
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=fork, initializer=_begin) as pool:
        assert pool.submit(_keeps).result()
    assert not _keeps()


def test_jobs_are_at_least_one(tmp_path):
    with pytest.raises(InputError, match="jobs is 0"):
        reproduce(tiny(), Store(tmp_path / "s.json"), jobs=0, progress=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_processes_end_when_the_one_that_started_them_is_killed():
    """They would hold their memory and wait for work for ever."""
    program = (
        "import os, time\n"
        "from scool_ppl.reproduce.grid import _processes\n"
        "if __name__ == '__main__':\n"
        "    with _processes(2) as pool:\n"
        "        print(pool.submit(os.getpid).result(), flush=True)\n"
        "        time.sleep(60)\n"
    )
    path = ["-c", program]
    with subprocess.Popen([sys.executable, *path], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        os.kill(worker, 0)
        parent.kill()
    for _ in range(100):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the process is still there 10 s later")
