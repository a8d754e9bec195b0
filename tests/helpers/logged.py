"""A fit of five rounds that is stopped in the third and goes on, with a logger; for tests of what the tracker then has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from scool_ppl.base.codec import Row
from scool_ppl.runs import Run
from scool_ppl.runs.loggers import Logger
from tests.helpers.runs import StoppedHereError, driver, stop_after

STOPS = ("logged too little", "logged too much")
"""Killed between checkpoint and log, or after a round that was logged but not saved."""


def went_on(make: Callable[[], Logger], folder: Path, stop: str) -> list[Row]:
    """The history of the run in `folder`, which each of two loggers has seen a part of."""
    logger = make()
    order: list[Any] = [stop_after(3), logger] if stop == "logged too little" else [logger, stop_after(3)]
    with suppress(StoppedHereError):
        driver().fit(5, run=folder, progress=False, callbacks=order)
    if stop == "logged too much":
        shutil.rmtree(folder / "checkpoints" / "round-000003")
    driver().fit(5, run=folder, resume=True, progress=False, callbacks=[make()])
    return Run.open(folder).history
