"""`scool choose`: which prior explains the evidence best; `scool posterior`: how sure a fit is of its graph."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from scool_ppl.base.signals import stoppable
from scool_ppl.cli.options import (
    DataRoot,
    Download,
    FederationSpec,
    NumClients,
    Quiet,
    grouped,
    models_of,
    with_settings,
)
from scool_ppl.data.specs import DEFAULT_FEDERATION, load_federation
from scool_ppl.errors import InputError
from scool_ppl.runs.folder import MARK, Run, free_name
from scool_ppl.workbench.settings import Settings
from scool_ppl.zoo.load import parse_hyperparameters

MODEL = "scool_sbm"
"""The model whose evidence, or posterior, is taken where nobody names another."""


@with_settings
def choose(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL|NAME=VALUE", help="models, each followed by its own; NAME=1,2,4 is three models"),
    ] = None,
    federation: FederationSpec = DEFAULT_FEDERATION,
    clients: NumClients = None,
    data_root: DataRoot = None,
    download: Download = True,
    *,
    settings: Settings,
    evidence: Annotated[str, typer.Option(help="the model whose run the evidence comes from")] = MODEL,
    out: Annotated[Path | None, typer.Option(help="folder of the table and the figure; default: runs/choose")] = None,
    quiet: Quiet = False,
) -> None:
    """Choose a model by the bound on the evidence.

    Default: block models of 1, 2, 3, 4, 6 and 8 blocks, mixed memberships, and a ring. All must have one likelihood; what
    the bound says is which prior fits the evidence, not which accuracy follows: that is what `scool compare` shows.
    """
    from scool_ppl.workbench.choose import CANDIDATES
    from scool_ppl.workbench.choose import choose as bounds_of

    models = grid(arguments) if arguments else list(CANDIDATES)
    with Run.reserved(out or free_name("runs", "choose")) as folder:
        data = load_federation(federation, seed=settings.seed, data_root=data_root, download=download, clients=clients)
        with stoppable():
            found = bounds_of(models, data, settings, evidence=evidence, progress=not quiet)
        found.save(folder)
    table = Table(title=f"bounds on the evidence {found.evidence}", title_justify="left", box=SIMPLE_HEAD)
    for column in ("model", "bound", "below the best", "note"):
        table.add_column(column, justify="right" if column in ("bound", "below the best") else "left")
    for row in found.rows():
        table.add_row(row["name"], f"{row['bound']:.2f}", f"{row['below the best']:.2f}", row["note"])
    console = Console(markup=False, highlight=False)
    console.print(table)
    near = ", ".join(one.name for one in found.near)
    console.print(f"highest bound: {found.best.name}" + (f"; not told apart from it: {near}" if near else ""))
    console.print(f"bounds and figure in {folder}", soft_wrap=True)


def posterior(
    place: Annotated[
        str, typer.Argument(metavar="RUN|FEDERATION", help="a run's folder, or a federation to fit a model to first")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL|NAME=VALUE", help=f"for a federation; default: {MODEL}")
    ] = None,
    draws: Annotated[int, typer.Option(help="draws of the graph")] = 1000,
    rounds: Annotated[int | None, typer.Option(help="communication rounds, for a federation")] = None,
    seed: Annotated[int, typer.Option(help="of the draws, and of a fit to a federation")] = 0,
    data_root: DataRoot = None,
    download: Download = True,
    out: Annotated[Path | None, typer.Option(help="folder of draws, table and picture; default: RUN/posterior")] = None,
    quiet: Quiet = False,
) -> None:
    """Draw from the posterior of a run's graph.

    How many edges and blocks there are, who is in one block, and how sure that is.
    """
    from scool_ppl.workbench.posterior import posterior_of
    from scool_ppl.workbench.tables import posterior_table
    from scool_ppl.workbench.workbench import Workbench

    run = Path(place)
    if (run / MARK).is_file():
        if arguments or rounds is not None:
            raise InputError(
                f"'{place}' is a run, which has its model and rounds; leave MODEL, NAME=VALUE, --rounds out"
            )
    else:
        ((model, choices),) = models_of(arguments or [], most=1, default=MODEL)
        settings = Settings(seed=seed, rounds=Settings.rounds if rounds is None else rounds)
        try:
            data = load_federation(place, seed=seed, data_root=data_root, download=download)
        except InputError as error:
            raise InputError(f"'{place}' is not a run's folder, and as a federation: {error}") from error
        run = free_name("runs", Path(model).stem)
        with stoppable():
            Workbench(data, settings, progress=not quiet).fit(model, choices, run=run)
    found = posterior_of(run, draws, seed, data_root=data_root, download=download)
    folder = found.save(out or run / "posterior")
    console = Console(markup=False, highlight=False)
    console.print(posterior_table(found.summary(), found.clients()))
    if found.is_sure:
        console.print("all draws are the same graph: q is a point mass, or sure of every edge; intervals say nothing")
    console.print(f"draws, table and picture in {folder}", soft_wrap=True)


def grid(arguments: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Models as `models_of` has them, one for each combination of values that are listed with commas."""
    found = []
    for model, pairs in grouped(arguments, MODEL):
        values = [
            [f"{name}={value}" for value in text.split(",")] for name, _, text in (p.partition("=") for p in pairs)
        ]
        found += [(model, parse_hyperparameters(model, list(chosen))) for chosen in product(*values)]
    return found
