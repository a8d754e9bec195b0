"""SIGINT and SIGTERM: heard between two steps, at once when they come again, and the user's handlers come back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from scool_ppl.base.signals import SIGNALS, Interrupted, pause, stoppable


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Whatever a test does, pytest has its own handlers back after it."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_request_waits_for_the_next_pause(number: int) -> None:
    steps = []

    def work() -> None:
        with stoppable():
            for step in range(3):
                pause()
                if step == 1:
                    signal.raise_signal(number)
                steps.append(step)

    with pytest.raises(Interrupted):
        work()
    assert steps == [0, 1], "the step in which it came was finished, the next one not begun"


def test_a_request_during_the_last_step_is_heard_at_the_end() -> None:
    done = []

    def work() -> None:
        with stoppable():
            signal.raise_signal(signal.SIGTERM)
            done.append(True)

    with pytest.raises(Interrupted):
        work()
    assert done
    pause()  # and is forgotten after it


def test_the_second_sigint_stops_at_once_and_a_second_sigterm_does_not() -> None:
    done = []

    def work() -> None:
        with stoppable():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            done.append("after two SIGTERM")
            signal.raise_signal(signal.SIGINT)
            done.append("never")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert not isinstance(caught.value, Interrupted)
    assert done == ["after two SIGTERM"]


def test_the_handlers_of_the_user_come_back() -> None:
    heard = []
    for number in SIGNALS:
        signal.signal(number, lambda number, _: heard.append(number))
    mine = {number: signal.getsignal(number) for number in SIGNALS}
    with stoppable():
        assert all(signal.getsignal(number) is not mine[number] for number in SIGNALS)
    assert {number: signal.getsignal(number) for number in SIGNALS} == mine
    with pytest.raises(ZeroDivisionError), stoppable():
        raise ZeroDivisionError
    assert {number: signal.getsignal(number) for number in SIGNALS} == mine
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]


def test_a_signal_that_is_to_be_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    heard = False
    try:
        with stoppable():
            signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:  # which would end the tests, not fail this one
        heard = True
    assert not heard
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_inside_another_one_the_outer_one_hears() -> None:
    steps = []

    def work() -> None:
        with stoppable():
            with stoppable():
                signal.raise_signal(signal.SIGTERM)
            steps.append("inner block ended")
            pause()
            steps.append("never")

    with pytest.raises(Interrupted):
        work()
    assert steps == ["inner block ended"]


def test_outside_the_main_thread_nothing_is_changed() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    inside = []

    def work() -> None:
        with stoppable():
            inside.extend(signal.getsignal(number) for number in SIGNALS)
            pause()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == before


def test_where_nobody_listens_a_pause_is_nothing() -> None:
    pause()
