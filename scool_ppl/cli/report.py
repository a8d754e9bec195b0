"""`scool report`: one HTML file about a run, a comparison or an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scool_ppl.report import write_report


def report(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="the folder of a run or a comparison, or an experiment's .json")
    ],
    out: Annotated[
        Path | None, typer.Option(help="the .html file to write; default: report.html in the folder")
    ] = None,
) -> None:
    """Write a report that a browser opens offline.

    One HTML file with the graph to explore, the table of clients, curves and what was asked; it loads nothing.
    """
    typer.echo(write_report(run, out))
