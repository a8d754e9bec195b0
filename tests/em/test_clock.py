"""Seconds are those of the innermost verb, and a round may stop where a verb begins."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from scool_ppl.base.signals import Interrupted, stoppable
from scool_ppl.em.clock import Clock


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_a_verb_that_another_one_needs_stops_its_seconds(ticks: list[float]) -> None:
    clock = Clock()
    with clock("train"):
        ticks[0] += 1
        with clock.counting("look"):
            ticks[0] += 10
        ticks[0] += 100
    ticks[0] += 1000  # between two verbs
    with contextlib.suppress(ValueError), clock("mix"):
        ticks[0] += 10_000
        raise ValueError("broken")
    with clock("train"):
        ticks[0] += 2
    assert clock.seconds == {"train": 103, "look": 10, "infer": 0, "mix": 10_000}


def test_a_verb_does_not_begin_once_somebody_has_asked_to_stop() -> None:
    clock, begun = Clock(), list[str]()

    def round() -> None:
        for verb in clock.seconds:
            with clock(verb):
                begun.append(verb)
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted), stoppable():
        round()
    assert begun == ["train"]
