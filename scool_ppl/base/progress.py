"""The progress bars of long work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def tracked(rounds: int, *, done: int = 0, enabled: bool = True) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar on standard error with round, loss, accuracy and bound; yields what to call with each round's row."""
    if not enabled:
        yield lambda row: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("round"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("fit", total=rounds, completed=done, note="")

        def report(row: dict[str, Any]) -> None:
            loss, accuracy, bound = _shown(row["loss"]), _shown(row["accuracy"]["mean"]), _shown(row["elbo"], 1)
            note = f"loss {loss}  {row.get('score', 'accuracy')} {accuracy}  bound {bound}"
            progress.update(task, advance=1, note=note)

        yield report


def _shown(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


@contextmanager
def counted(title: str | None, count: int) -> Iterator[Callable[[str], None]]:
    """A bar over pieces of work on standard error, which says which one was done last; no title, no bar."""
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
        TextColumn("{task.fields[last]}"),
    )
    with Progress(*columns, console=Console(stderr=True), disable=title is None or count == 0) as bar:
        task = bar.add_task(title or "", total=count, last="")
        yield lambda last: bar.update(task, advance=1, last=last)
