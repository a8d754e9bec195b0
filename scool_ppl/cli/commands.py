"""The commands of `scool`, each a thin layer over the library."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from scool_ppl.base.options import parse_options
from scool_ppl.base.signals import stoppable
from scool_ppl.cli.choose import choose, posterior
from scool_ppl.cli.compare import compare
from scool_ppl.cli.federations import commands
from scool_ppl.cli.flower import commands as flower_commands
from scool_ppl.cli.models import models
from scool_ppl.cli.networks import export, predict
from scool_ppl.cli.options import DataRoot, Download, FederationSpec, NumClients, Quiet, Shard, models_of, with_settings
from scool_ppl.cli.report import report
from scool_ppl.cli.reproduce import reproduce
from scool_ppl.cli.transfer import transfer
from scool_ppl.data.specs import DEFAULT_FEDERATION, load_federation
from scool_ppl.errors import InputError, RunError, StoppedError
from scool_ppl.far.ranks import ranks, restarts
from scool_ppl.runs.folder import MARK, Run, free_name
from scool_ppl.runs.loggers import LOGGERS
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.workbench import Result, Workbench
from scool_ppl.zoo.load import hyperparameters, parse_hyperparameters

app = typer.Typer(rich_markup_mode=None)
app.add_typer(commands, name="federations")
app.add_typer(flower_commands, name="flower")


@app.command()
@with_settings
def fit(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL|NAME=VALUE", help="a model, its hyperparameters")
    ] = None,
    federation: FederationSpec = DEFAULT_FEDERATION,
    clients: NumClients = None,
    data_root: DataRoot = None,
    download: Download = True,
    *,
    settings: Settings,
    out: Annotated[Path | None, typer.Option(help="the run's folder; default: runs/MODEL")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace a run that is already there")] = False,
    log: Annotated[list[str] | None, typer.Option(help=f"{', '.join(LOGGERS)}; may be given again")] = None,
    baseline: Annotated[bool, typer.Option("--baseline", help="also train local-only, for the gain over it")] = False,
    shard: Shard = False,
    quiet: Quiet = False,
) -> None:
    """Fit a model to a federation.

    MODEL is a name or a .py file, default hedge; NAME=VALUE are its hyperparameters, see `scool models`.
    """
    ((model, choices),) = models_of(arguments or [], most=1)
    data = load_federation(federation, seed=settings.seed, data_root=data_root, download=download, clients=clients)
    with ranks() as processes:
        if processes is not None and out is None:
            raise InputError("torchrun has begun several processes, expected --out, the folder of the run; give it")
        leads, folder = processes is None or processes.leads, out or free_name("runs", Path(model).stem)
        bench = Workbench(data, settings, progress=leads and not quiet, ranks=processes, shard=shard)
        with nullcontext(folder) if processes is None else processes.folder(folder) as mine, _resumable(folder):
            begun = restarts() > 0 and (mine / MARK).is_file()  # torchrun had to begin anew: the run goes on
            run, logs = Run.open(mine) if begun else mine, (log or ()) if leads else ()
            result = bench.fit(model, choices, run=run, overwrite=overwrite, baseline=baseline, log=logs)
        if leads:
            _report(result, folder)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run that was interrupted, or has ended")],
    rounds: Annotated[
        int | None, typer.Option(help="communication rounds in all; default: as many as were asked for")
    ] = None,
    data_root: DataRoot = None,
    download: Download = False,
    shard: Shard = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run from its last checkpoint.

    It ends bit for bit as it would have without the interruption; its model and its data must be what they were. A run
    that has ended goes on with more --rounds. A model file of your own is run again: resume no stranger's folder.
    """
    from scool_ppl.workbench.resume import resume as go_on

    with ranks() as processes:
        leads = processes is None or processes.leads
        with nullcontext(run) if processes is None else processes.folder(run) as mine, _resumable(run):
            progress = leads and not quiet
            result = go_on(
                mine, rounds, data_root=data_root, download=download, progress=progress, ranks=processes, shard=shard
            )
        if leads:
            _report(result, run)


@app.command()
def plot(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a run's folder")],
    gexf: Annotated[bool, typer.Option("--gexf", help="also write graph.gexf, for Gephi")] = False,
    all_edges: Annotated[bool, typer.Option("--all-edges", help="all edges, not only those that are believed")] = False,
) -> None:
    """Draw the pictures of a run again.

    Believed are edges of a probability above one half; where each client chooses one teacher, those at least half as
    likely as its likeliest.
    """
    folder = Run.open(run)
    threshold = 0 if all_edges else None
    paths = folder.draw(threshold)
    if gexf:
        paths.append(folder.path / "graph.gexf")
        folder.graph.save(paths[-1], threshold)
    for path in paths:
        typer.echo(path)


@app.command()
def check(
    model: Annotated[str, typer.Argument(metavar="MODEL_FILE", help="a .py file or a model's name")],
    choices: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="its hyperparameters, and clients=N")
    ] = None,
) -> None:
    """Check that a prior keeps the contract.

    Every line passes or says what to do. clients=N checks it with N clients, for a model whose files fix how many.
    """
    from scool_ppl.zoo.check import check_model

    words = {True: "pass", False: "FAIL", None: "skip"}
    given = choices or []
    clients = [] if "clients" in hyperparameters(model) else [one for one in given if one.startswith("clients=")]
    number = parse_options("option", clients, _clients)
    chosen = parse_hyperparameters(model, [one for one in given if one not in clients])
    lines = check_model(model, number.get("clients"), **chosen)
    for line in lines:
        typer.echo(f"{words[line.passed]}  {line.name}: {line.note}")
    if any(line.passed is False for line in lines):
        raise typer.Exit(2)


app.command()(compare)
app.command()(transfer)
app.command()(choose)
app.command()(posterior)
app.command()(predict)
app.command()(export)
app.command()(report)
app.command()(models)
app.command()(reproduce)


def _clients(clients: int) -> None:
    """What `scool check` takes beside hyperparameters."""


def _report(result: Result, folder: Path) -> None:
    """The table and the folder at the end of a fit."""
    from scool_ppl.workbench.tables import fit_table

    console = Console()
    console.print(fit_table(result))
    console.print(f"graph, history and pictures in {folder}", highlight=False, soft_wrap=True)


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Signals end the work between two steps; whatever ends it early, the message says how to go on."""
    try:
        with stoppable():
            yield
    except KeyboardInterrupt as stop:
        raise StoppedError(f"{str(stop) or 'interrupted'}{_way(folder)}") from None
    except RunError as error:
        raise RunError(f"{error}{_way(folder)}") from error


def _way(folder: Path) -> str:
    return f"; go on with `scool resume {shlex.quote(str(folder))}`" if (folder / MARK).is_file() else ""
