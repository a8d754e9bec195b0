"""Fills the result store of an experiment, cell by cell, in this process or in several."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path

from scool_ppl.base.arguments import check_whole
from scool_ppl.base.codec import Row
from scool_ppl.base.machine import keep_memory
from scool_ppl.base.progress import counted
from scool_ppl.errors import InputError, RunError
from scool_ppl.reproduce.cells import run_cell
from scool_ppl.reproduce.experiment import Cell, Experiment
from scool_ppl.reproduce.results import Results
from scool_ppl.runs.store import Store

Runner = Callable[[Cell], Row]


def reproduce(
    experiment: Experiment,
    store: Store,
    *,
    data_root: Path | None = None,
    device: str = "cpu",
    download: bool = False,
    jobs: int = 1,
    progress: bool = True,
) -> Results:
    """Run what is missing: first the candidates under the tuning seed, then the table; what is stored is kept."""
    check_whole("jobs", jobs)
    results = Results(experiment, store)
    run = partial(run_cell, data_root=data_root, device=device, download=download)
    with _processes(jobs) as pool:
        _fill(experiment.tuning(), store, partial(_untested, run), pool, "tuning" if progress else None)
        _fill(experiment.cells(results.chosen), store, run, pool, "cells" if progress else None)
    return results


@contextmanager
def _processes(jobs: int) -> Iterator[ProcessPoolExecutor | None]:
    """Processes that are started when they are first needed; None for a single job, which is done in this process."""
    if jobs == 1:
        yield None
        return
    # Fresh processes: a fork of one that runs threads may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """This process keeps its memory, as the command does, and ends when the one that started it is killed, instead of
    waiting for work for ever.
    """
    keep_memory()
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _untested(run: Runner, cell: Cell) -> Row:
    """A cell that chooses between candidates: its numbers on test data are not kept."""
    return {name: value for name, value in run(cell).items() if name not in ("test", "history", "graph", "graphs")}


def _fill(
    cells: Iterable[Cell], store: Store, run: Runner, pool: ProcessPoolExecutor | None, title: str | None
) -> None:
    missing = [cell for cell in cells if store.get(cell) is None]
    with counted(title, len(missing)) as report:
        for cell, record in _run_all(missing, run, pool):
            store.put(cell, record)
            report(cell.key)


def _run_all(cells: list[Cell], run: Runner, pool: ProcessPoolExecutor | None) -> Iterator[tuple[Cell, Row]]:
    if pool is None or len(cells) < 2:
        for cell in cells:
            with _named(cell):
                record = run(cell)
            yield cell, record
        return
    waiting = {pool.submit(run, cell): cell for cell in cells}
    for done in as_completed(waiting):
        with _named(waiting[done]):
            record = _result(done)
        yield waiting[done], record


def _result(done: Future[Row]) -> Row:
    try:
        return done.result()
    except BrokenProcessPool:
        raise RunError(
            "its process or one beside it was killed, as the system does where memory runs out; "
            "give the same command with fewer --jobs"
        ) from None


@contextmanager
def _named(cell: Cell) -> Iterator[None]:
    """Says which cell it was that failed."""
    try:
        yield
    except InputError as error:
        raise InputError(f"cell '{cell.key}': {error}") from error
    except RunError as error:
        raise RunError(f"cell '{cell.key}': {error}; the cells before it are stored") from error
