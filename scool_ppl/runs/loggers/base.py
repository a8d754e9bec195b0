"""Logger: a callback of EM.fit that writes every round once; and what is told when the rounds begin and end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from scool_ppl.base.codec import Row
from scool_ppl.em.em import EM
from scool_ppl.em.state import EMInfo, EMState
from scool_ppl.errors import InputError, RunError
from scool_ppl.runs.folder import milestone
from scool_ppl.runs.identity import TOLD, facts

Scalars = dict[str, float]
"""Numbers by name, such as accuracy/mean."""


class Logger(ABC):
    """A callback of EM.fit that logs every round once, however often the run is stopped and goes on.

    EM.fit calls `begin` before the first round and `end` after the last one, also when an error or a signal ends it. A
    tracker is a subclass that says how it opens, writes a row and closes.
    """

    package: ClassVar[str | None] = None
    """What must be installed; the extra of this library has the class's name in small letters."""
    takes_pictures: ClassVar[bool] = False

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        """`settings` are logged once, beside the parts of the model and how the clients are trained."""
        extra = type(self).__name__.lower()
        if self.package is not None and find_spec(self.package) is None:
            raise InputError(
                f"logging to {extra} needs the package {self.package}, which is not installed; "
                f"pip install 'scool_ppl[{extra}]'"
            )
        self.settings = dict(settings or {})
        self._em: EM | None = None
        self._last = 0

    @classmethod
    @abstractmethod
    def of_run(cls, folder: Path, settings: Mapping[str, Any]) -> Logger:
        """The logger of a run's folder."""

    def begin(self, em: EM, history: Sequence[Row] | None) -> None:
        """Open the log; `history` has the rounds of a run that goes on, those that were not logged are added now."""
        self._em = em
        parts = {name: ", ".join(told) for name, told in facts(em).items() if name in (*TOLD, "schedule", "seed")}
        with self._reported():
            self._last = self.open({**flattened(self.settings), **parts}, goes_on=history is not None)
            for row in history or ():
                self._log(row)

    def __call__(self, state: EMState, info: EMInfo, row: Row) -> None:
        """Log a round, and at rounds 1, 2, 5, 10, 20, ... a picture of the graph."""
        if self._em is None:
            raise InputError(
                f"{type(self).__name__} is not open; pass it to EM.fit(callbacks=[...]), or call begin(em)"
            )
        with self._reported():
            if self._log(row) and self.takes_pictures and milestone(state.round):
                self.picture(state.round, _png(self._em, state))

    def end(self, error: BaseException | None = None) -> None:
        """Close the log; `error` is what ended the fit early."""
        if self._em is not None:
            self._em = None
            with self._reported():
                self.close(error)

    def _log(self, row: Row) -> bool:
        if row["round"] <= self._last:
            return False  # a run that goes on repeats its rounds bit for bit
        self._last = row["round"]
        self.write(self._last, scalars(row))
        return True

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """What the tracker raises, as one line."""
        try:
            yield
        except self.errors() as error:
            reason = " ".join(str(error).split())
            raise RunError(
                f"{type(self).__name__} cannot log: {reason}; what is in the run's folder is intact, repair it and resume"
            ) from error

    def errors(self) -> tuple[type[Exception], ...]:
        """What the tracker raises when it cannot be reached or written."""
        return (OSError,)

    @abstractmethod
    def open(self, settings: Mapping[str, str], *, goes_on: bool) -> int:
        """Begin a log, or go on with one; returns the last round that is in it, 0 for none."""

    @abstractmethod
    def write(self, round: int, values: Scalars) -> None:
        """A row of numbers by name, such as accuracy/mean."""

    def picture(self, round: int, png: bytes) -> None:
        """The graph of a round, as the bytes of a .png file."""
        raise TypeError(f"{type(self).__name__} takes no pictures")

    @abstractmethod
    def close(self, error: BaseException | None) -> None:
        """Nothing is written after this."""


@contextmanager
def watched(em: EM, callbacks: Sequence[Any], history: Sequence[Row] | None) -> Iterator[None]:
    """Callbacks that have `begin` and `end` are told when the rounds begin and end."""
    begun: list[Any] = []
    failed: BaseException | None = None
    try:
        for callback in callbacks:
            if hasattr(callback, "begin"):
                callback.begin(em, history)
                begun.append(callback)
        yield
    except BaseException as error:
        failed = error
        raise
    finally:
        for callback in reversed(begun):
            callback.end(failed)


def flattened(value: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Nested settings as texts: {"settings": {"rounds": 5}} is {"settings/rounds": "5"}."""
    found: dict[str, str] = {}
    for name, item in value.items():
        found |= flattened(item, f"{above}{name}/") if isinstance(item, Mapping) else {f"{above}{name}": str(item)}
    return found


def scalars(row: Mapping[str, Any], above: str = "") -> Scalars:
    """The numbers of a row of the history by name, accuracy/mean; who is quarantined is counted, None left out."""
    found: Scalars = {}
    for name, value in row.items():
        if name == "quarantined":
            found[f"{above}{name}"] = float(len(value))
        elif isinstance(value, Mapping):
            found |= scalars(value, f"{above}{name}/")
        elif isinstance(value, int | float) and name != "round":
            found[f"{above}{name}"] = float(value)
    return found


def _png(em: EM, state: EMState) -> bytes:
    from scool_ppl.plots.graph.drawing import draw_graph
    from scool_ppl.plots.style import png_of

    picture: Any = draw_graph(em.graph(state))
    return png_of(picture.figure, dpi=100)


def occupied(path: Path, rounds: int) -> InputError:
    """The error for a log that another run has written."""
    return InputError(f"'{path}' has a log of {rounds} rounds already, expected a new one; choose another place")
