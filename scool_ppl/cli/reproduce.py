"""`scool reproduce`: run an experiment, or list them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from scool_ppl.base.files import csv_text, replacing
from scool_ppl.cli.options import DataRoot, Device, Download, Quiet
from scool_ppl.errors import InputError, StoppedError
from scool_ppl.reproduce.catalogue import experiment_names, experiment_title, load_experiment
from scool_ppl.reproduce.experiment import SCALES
from scool_ppl.reproduce.grid import reproduce as fill
from scool_ppl.reproduce.render import client_rows, first_table, refreshed
from scool_ppl.reproduce.render import document as section_of
from scool_ppl.reproduce.results import Results
from scool_ppl.runs.store import Store
from scool_ppl.workbench.settings import Settings


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="an experiment or a .py file; none: list them")
    ] = None,
    scale: Annotated[
        str, typer.Option(help=f"{', '.join(SCALES)}: seconds, minutes to hours, hours, or a GPU's hours")
    ] = "smoke",
    out: Annotated[Path, typer.Option(help="folder of the result store, tables and figures")] = Path("runs/reproduce"),
    document: Annotated[
        Path | None, typer.Option(help="a Markdown file whose section of this experiment is renewed")
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="only this row; may be given several times")] = None,
    column: Annotated[list[str] | None, typer.Option(help="only this column; may be given several times")] = None,
    seeds: Annotated[int | None, typer.Option(help="only the first so many seeds")] = None,
    data_root: DataRoot = None,
    download: Download = True,
    device: Device = Settings.device,
    jobs: Annotated[int, typer.Option(help="cells at once, each in a process with one thread")] = 1,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of a paper and print its table.

    Cells that are stored already are kept: interrupt it and go on by the same command, delete a cell to run it again.
    With --method, --column or --seeds the table is of that part of the grid; its cells are of use for the whole.
    """
    console = Console(markup=False)  # labels may have brackets
    if name is None:
        console.print(_listing())
        return
    experiment = load_experiment(name, scale)
    if method or column or seeds is not None:
        experiment = experiment.part(method or (), column or (), seeds)
    stem = f"{Path(name).stem}-{scale}"
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder '{out}': {error.strerror}; choose another --out") from error
    store = Store(out / f"{stem}.json")
    if document is not None:
        refreshed(_text(document), stem, "")  # refused now, not after the cells
    try:
        results = fill(
            experiment, store, data_root=data_root, device=device, download=download, jobs=jobs, progress=not quiet
        )
    except KeyboardInterrupt:
        raise StoppedError(f"interrupted; cells that are done are in {store.path}, the same command goes on") from None
    paths = save(results, out, stem)
    if document is not None:
        paths.append(renew(document, stem, section_of(results)))
    console.print(_table(results))
    for path in [store.path, *paths]:
        console.print(f"{path}", highlight=False, soft_wrap=True)


def _listing() -> Table:
    table = Table("experiment", "what it is")
    for known in experiment_names():
        table.add_row(known, experiment_title(known))
    return table


def _table(results: Results) -> Table:
    heads, rows = first_table(results)
    table = Table(title=results.experiment.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for place, column in enumerate(heads):
        table.add_column(column, justify="right" if place else "left", overflow="fold", no_wrap=place == 0)
    for row in rows:
        table.add_row(*row)
    return table


def renew(path: Path, stem: str, section: str) -> Path:
    """Replace a section of a document by what the store says now."""
    text = refreshed(_text(path), stem, section)
    with replacing(path) as temporary:
        temporary.write_text(text)
    return path


def _text(document: Path) -> str:
    try:
        return document.read_text()
    except OSError as error:
        raise InputError(f"cannot read the document '{document}': {error.strerror}; check the path") from error


def save(results: Results, out: Path, stem: str) -> list[Path]:
    """Write the tables and figures of an experiment beside its store."""
    paths = []
    tables = {".md": section_of(results)}
    if not results.experiment.compact:
        tables["-clients.csv"] = csv_text(client_rows(results)) + "\n"
    for suffix, content in tables.items():
        paths.append(out / f"{stem}{suffix}")
        with replacing(paths[-1]) as temporary:
            temporary.write_text(content)
    if results.experiment.figures is not None:
        from scool_ppl.plots.style import save_figure

        for name, figure in results.experiment.figures(results).items():
            paths.append(out / f"{stem}-{name}.png")
            save_figure(figure, paths[-1])
    return paths
