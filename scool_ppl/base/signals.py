"""SIGINT and SIGTERM as a request that is heard between two steps of the work."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_asked: list[int] | None = None  # the signals that came; None while nobody catches them


class Interrupted(KeyboardInterrupt):
    """The work was asked to stop, and did so between two steps."""


@contextmanager
def stoppable() -> Iterator[None]:
    """The first SIGINT or SIGTERM is remembered until `pause` is called or the block ends; a SIGINT after it stops at
    once. The handlers that were there before come back at the end. Outside the main thread nothing is changed.
    """
    global _asked
    if _asked is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    _asked = []
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # who started us wants it ignored
                signal.signal(number, _ask)
        yield
        pause()
    finally:
        _asked = None
        for number, handler in before.items():
            # None: installed by something other than Python, which cannot be put back by it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def pause() -> None:
    """A place where the work may stop: raises Interrupted if that was asked for."""
    if _asked:
        raise Interrupted("interrupted")


def _ask(number: int, frame: FrameType | None) -> None:
    if _asked is None or (_asked and number == signal.SIGINT):
        raise KeyboardInterrupt
    _asked.append(number)
    if sys.stderr.isatty():
        os.write(2, b"\nstopping after this step; once more to stop at once\n")
