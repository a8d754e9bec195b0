"""`scool compare`: several models on the same clients; what is done is kept."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from scool_ppl.base.arguments import check_whole
from scool_ppl.base.signals import stoppable
from scool_ppl.cli.options import (
    DataRoot,
    Download,
    FederationSeed,
    FederationSpec,
    NumClients,
    Quiet,
    models_of,
    with_settings,
)
from scool_ppl.data.federation import Federation
from scool_ppl.data.specs import DEFAULT_FEDERATION, load_federation
from scool_ppl.errors import StoppedError
from scool_ppl.runs.folder import free_name
from scool_ppl.workbench.settings import Settings


@with_settings
def compare(
    arguments: Annotated[
        list[str], typer.Argument(metavar="MODEL|NAME=VALUE", help="models, each followed by its own")
    ],
    federation: FederationSpec = DEFAULT_FEDERATION,
    clients: NumClients = None,
    data_root: DataRoot = None,
    download: Download = True,
    *,
    settings: Settings,
    seeds: Annotated[int, typer.Option(help="how many seeds, from --seed on")] = 1,
    federation_seed: FederationSeed = None,
    out: Annotated[Path | None, typer.Option(help="folder of the table and the figure; default: runs/compare")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace a comparison that is already there")] = False,
    quiet: Quiet = False,
) -> None:
    """Fit several models on the same clients.

    Initialisation and batches are the same too; tables and one figure. Every fit that is done is kept: interrupt it, and
    go on by the same command with the same --out.
    """
    from scool_ppl.workbench.compare import compare as run_comparison
    from scool_ppl.workbench.tables import comparison, comparison_table

    models = models_of(arguments)

    def data(number: int) -> Federation:
        return load_federation(federation, seed=number, data_root=data_root, download=download, clients=clients)

    folder = out or free_name("runs", "compare")
    numbers, networks_seed = numbered(settings.seed, seeds, federation_seed)
    with kept(folder):
        results = run_comparison(
            models,
            data,
            settings,
            numbers,
            networks_seed=networks_seed,
            out=folder,
            overwrite=overwrite,
            progress=not quiet,
        )
    console = Console()
    console.print(comparison_table(comparison(results), seeds))
    console.print(f"tables, clients and figure in {folder}", highlight=False, soft_wrap=True)


def numbered(seed: int, seeds: int, federation_seed: int | None) -> tuple[range, int | None]:
    """The seeds of the federations, and that of the networks where it is another."""
    check_whole("seeds", seeds)
    first = seed if federation_seed is None else federation_seed
    return range(first, first + seeds), None if federation_seed is None else seed


@contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Signals end the work between two steps; the message says how to go on with what the folder has."""
    try:
        with stoppable():
            yield
    except KeyboardInterrupt:
        raise StoppedError(
            f"interrupted; fits that are done are in '{folder}', the same command with --out {shlex.quote(str(folder))} "
            "goes on"
        ) from None
