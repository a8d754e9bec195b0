"""The progress bars of long work: in a terminal a line that moves, in a notebook one that is replaced, elsewhere lines.

What is read later (a file, a pipe, a test's record) gets ten lines at most and no control codes.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import Any

with warnings.catch_warnings():
    # Pyro imports these bars, too, which warn in notebooks that have no widgets: nothing here needs any.
    warnings.simplefilter("ignore")
    import_module("tqdm.auto")

_LINES = 10
"""So many lines are written where none can be replaced."""

Advance = Callable[[str], None]
"""Called after each piece of work with what is to be said of it."""


@contextmanager
def tracked(rounds: int, *, done: int = 0, enabled: bool = True) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar on standard error with round, loss, accuracy and bound; yields what to call with each round's row."""
    with _bar("round", rounds, done, enabled) as advance:

        def report(row: dict[str, Any]) -> None:
            if enabled:
                loss, accuracy, bound = _shown(row["loss"]), _shown(row["accuracy"]["mean"]), _shown(row["elbo"], 1)
                advance(f"loss {loss}  {row.get('score', 'accuracy')} {accuracy}  bound {bound}")

        yield report


@contextmanager
def counted(title: str | None, count: int) -> Iterator[Advance]:
    """A bar over pieces of work on standard error, which says which one was done last; no title, no bar."""
    with _bar(title or "", count, 0, title is not None and count > 0) as advance:
        yield advance


def _bar(title: str, total: int, done: int, enabled: bool) -> Any:
    if not enabled:
        return _silent()
    if _in_notebook():
        return _in_cell(title, total, done)
    return _in_terminal(title, total, done) if sys.stderr.isatty() else _in_lines(title, total, done)


def _in_notebook() -> bool:
    """Is this the kernel of a notebook, whose cells can be written again? A terminal with IPython is none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def _silent() -> Iterator[Advance]:
    yield lambda note: None


@contextmanager
def _in_terminal(title: str, total: int, done: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, completed=done, note="")
        yield lambda note: bar.update(task, advance=1, note=note)


@contextmanager
def _in_cell(title: str, total: int, done: int) -> Iterator[Advance]:
    """A bar of HTML that the notebook replaces: it needs no widgets, and the saved notebook keeps the last one."""
    from IPython.display import HTML, display

    began, count = time.monotonic(), done

    def bar(note: str) -> HTML:
        text = escape(f"{title} {count}/{total}  {time.monotonic() - began:.0f} s  {note}")
        return HTML(f'<progress value="{count}" max="{total}"></progress> <code>{text}</code>')

    shown = display(bar(""), display_id=True)

    def advance(note: str) -> None:
        nonlocal count
        count += 1
        shown.update(bar(note))

    yield advance


@contextmanager
def _in_lines(title: str, total: int, done: int) -> Iterator[Advance]:
    count = done

    def advance(note: str) -> None:
        nonlocal count
        count += 1
        if count * _LINES // total > (count - 1) * _LINES // total:
            print(f"{title} {count}/{total}  {note}".rstrip(), file=sys.stderr, flush=True)

    yield advance


def _shown(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def announced(text: str, *, enabled: bool = True) -> None:
    """A line on standard error above the bar of the work that it names."""
    if enabled:
        from rich.console import Console

        Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)
