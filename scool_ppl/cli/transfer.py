"""`scool transfer`: what a run has learned, used on other clients, beside the same model from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from scool_ppl.cli.compare import kept, numbered
from scool_ppl.cli.options import DataRoot, Download, FederationSeed, NumClients, Quiet
from scool_ppl.data.federation import Federation
from scool_ppl.data.specs import load_federation
from scool_ppl.runs.folder import Run, free_name
from scool_ppl.zoo.load import parse_hyperparameters


def transfer(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of the run that has learned")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="hyperparameters that are others here")
    ] = None,
    *,
    federation: Annotated[str, typer.Option("--federation", help="the other clients, see `scool federations`")],
    clients: NumClients = None,
    data_root: DataRoot = None,
    download: Download = True,
    rounds: Annotated[int | None, typer.Option(help="communication rounds; default: the run's")] = None,
    seed: Annotated[
        int | None, typer.Option(help="of the other clients and their training; default: the run's")
    ] = None,
    seeds: Annotated[int, typer.Option(help="how many seeds, from --seed on")] = 1,
    federation_seed: FederationSeed = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="what was learned stays as it is")] = False,
    out: Annotated[Path | None, typer.Option(help="folder of tables and figure; default: runs/transfer")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace a comparison that is already there")] = False,
    quiet: Quiet = False,
) -> None:
    """Use what a run's prior has learned on other clients.

    An encoder, B and alpha of a block model, a coefficient: what belongs to no client. The run's model is fitted to the
    other clients twice, with it and from scratch, with the run's settings. Every fit that is done is kept: the same
    command with the same --out goes on.
    """
    from scool_ppl.workbench.resume import Request
    from scool_ppl.workbench.tables import comparison, comparison_table, rounds_table
    from scool_ppl.workbench.transfer import transfer as transferred

    asked = Request.read(Run.open(run))
    numbers, networks_seed = numbered(asked.settings.seed if seed is None else seed, seeds, federation_seed)
    folder = out or free_name("runs", "transfer")

    def data(number: int) -> Federation:
        return load_federation(federation, seed=number, data_root=data_root, download=download, clients=clients)

    with kept(folder):
        results = transferred(
            run,
            data,
            choices=parse_hyperparameters(asked.model, arguments or []),
            rounds=rounds,
            seeds=numbers,
            networks_seed=networks_seed,
            freeze=freeze,
            out=folder,
            overwrite=overwrite,
            progress=not quiet,
        )
    console = Console()
    console.print(comparison_table(comparison(results), seeds), rounds_table(results))
    console.print(f"tables, clients and figure in {folder}", highlight=False, soft_wrap=True)
