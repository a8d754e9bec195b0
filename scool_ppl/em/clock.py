"""How long each verb of a round takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from scool_ppl.base.signals import pause


@dataclass
class Clock:
    """Seconds of each verb; a verb that another one needs meanwhile has its own, and stops the other's."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("train", "look", "infer", "mix"), 0.0))
    _running: list[str] = field(default_factory=list)
    _since: float = 0.0

    @contextmanager
    def __call__(self, verb: str) -> Iterator[None]:
        pause()
        with self.counting(verb):
            yield

    @contextmanager
    def counting(self, verb: str) -> Iterator[None]:
        """Time is that of the innermost verb."""
        self._book()
        self._running.append(verb)
        try:
            yield
        finally:
            self._book()
            self._running.pop()

    def _book(self) -> None:
        now = time.perf_counter()
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._since = now
