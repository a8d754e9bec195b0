"""Callbacks with a beginning and an end are told of both, whatever ends the rounds; what is missing is said before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scool_ppl.errors import InputError, RunError
from scool_ppl.runs.loggers import LOGGERS, TensorBoard, loggers_of
from scool_ppl.runs.loggers import base as loggers
from scool_ppl.runs.loggers.base import flattened, scalars
from tests.helpers.command import TINY, refused
from tests.helpers.runs import StoppedHereError, driver, stop_after


class Told:
    """A callback that notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def begin(self, em: object, history: list[Any] | None) -> None:
        self.heard.append(None if history is None else [row["round"] for row in history])

    def __call__(self, state: Any, info: object, row: object) -> None:
        self.heard.append(state.round)

    def end(self, error: BaseException | None) -> None:
        self.heard.append(type(error).__name__)


def test_a_callback_is_told_when_the_rounds_begin_and_end(tmp_path: Path) -> None:
    first, second = Told(), Told()
    with pytest.raises(StoppedHereError):
        driver().fit(3, run=tmp_path / "run", progress=False, callbacks=[first, stop_after(2)])
    driver().fit(3, run=tmp_path / "run", resume=True, progress=False, callbacks=[second])
    assert first.heard == [None, 1, 2, "StoppedHereError"]
    assert second.heard == [[1, 2], 3, "NoneType"]


def test_what_begins_is_ended_though_another_does_not_begin() -> None:
    class Refuses(Told):
        def begin(self, em: object, history: object) -> None:
            raise InputError("no")

    first, second = Told(), Refuses()
    with pytest.raises(InputError, match="no"):
        driver().fit(1, progress=False, callbacks=[first, second])
    assert first.heard == [None, "InputError"]
    assert second.heard == []


def test_numbers_of_a_row_have_names() -> None:
    row = {
        "round": 3,
        "score": "accuracy",
        "elbo": -2,
        "accuracy": {"mean": 0.5, "std": None},
        "quarantined": {"client 1": "its loss is not finite"},
    }
    assert scalars(row) == {"elbo": -2.0, "accuracy/mean": 0.5, "quarantined": 1.0}
    assert flattened({"a": {"b": {"c": 1}}, "d": None}) == {"a/b/c": "1", "d": "None"}


@pytest.mark.parametrize("name", [name for name, kind in LOGGERS.items() if kind.package is not None])
def test_a_tracker_that_is_not_installed_is_refused_before_training(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda package: None)
    monkeypatch.setattr("scool_ppl.em.EM.step", lambda *_, **__: pytest.fail("trained"))
    line = refused("fit", "local", *TINY, f"--log={name}", "--out", tmp_path / "run")
    assert f"pip install 'scool_ppl[{name}]'" in line
    assert not (tmp_path / "run").exists()


def test_an_unknown_tracker_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'tensorboard'"):
        loggers_of(["tensorbord"], tmp_path, {})


def test_a_logger_that_cannot_write_is_one_line_and_the_run_goes_on_later(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="TensorBoard cannot log"):
        driver().fit(1, run=tmp_path / "run", progress=False, callbacks=[TensorBoard(tmp_path / "file" / "events")])
    assert driver().fit(1, run=tmp_path / "run", resume=True, progress=False).history
