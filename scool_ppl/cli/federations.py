"""`scool federations`: which there are, and what one of them looks like."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from scool_ppl.base.describe import listed
from scool_ppl.base.options import accepted
from scool_ppl.cli.options import DataRoot, Download, NumClients, Seed
from scool_ppl.data.datasets import DATASETS
from scool_ppl.data.federation import Federation
from scool_ppl.data.files import HIDDEN, TABLES, TEXT, own_npz, tables
from scool_ppl.data.generated import GENERATED
from scool_ppl.data.own import READERS
from scool_ppl.data.reading import SPLITS
from scool_ppl.data.recipes import RECIPES
from scool_ppl.data.recipes.finish import finished
from scool_ppl.data.specs import DEFAULT_FEDERATION, load_federation
from scool_ppl.data.texts import texts
from scool_ppl.errors import InputError

MOST_CLIENTS = 60
"""Clients that get a row of the table."""

commands = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@commands.callback()
def federations(context: typer.Context) -> None:
    """List recipes, options and datasets.

    `scool federations show SPEC` draws one.
    """
    if context.invoked_subcommand is not None:
        return
    table = Table("recipe", "what it is", "options")
    for hidden, recipes in (("pool", RECIPES), ("random", GENERATED)):
        for name, recipe in recipes.items():
            options = [f"{key}={p.default}" for key, p in accepted(recipe, (hidden,)).items()]
            table.add_row(name, (inspect.getdoc(recipe) or "").splitlines()[0], " ".join(options))
    console = Console(markup=False)  # brackets are the documents' own
    console.print(table)
    for line in (
        f"all recipes: {_options(finished)}",
        f"recipe:dataset:key=value,... with a dataset of {', '.join(DATASETS)}",
        f"or your own FILE.npz (inputs, targets), {', '.join(_described(name) for name in READERS)}",
        *([f"name:key=value,... without a dataset: {', '.join(GENERATED)}"] if GENERATED else []),
        f"or your own tables, {TABLES}:FOLDER_OR_FILE:{_options(tables)}",
        f"or your own texts, {TEXT}:FOLDER:{_options(texts)}",
        f"or a federation's own FILE.npz (inputs, targets, client), {_options(own_npz)}",
        f"default: {DEFAULT_FEDERATION}",
    ):
        console.print(line, highlight=False)


@commands.command()
def show(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="recipe:dataset:key=value,..., see `scool federations`")],
    clients: NumClients = None,
    data_root: DataRoot = None,
    download: Download = True,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="the picture: .png, .pdf, .svg, ...")] = Path("federation.png"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace a picture that is already there")] = False,
) -> None:
    """Print who has how much of what, and draw it."""
    from scool_ppl.plots.federation import draw_federation
    from scool_ppl.plots.style import save_figure

    if out.exists() and not overwrite:
        raise InputError(f"'{out}' exists, expected a new file; choose another --out or add --overwrite")
    federation = load_federation(spec, seed=seed, data_root=data_root, download=download, clients=clients)
    save_figure(draw_federation(federation), out)
    console = Console()
    console.print(summary(federation), highlight=False)
    console.print(_table(federation))
    console.print(f"picture in {out}", highlight=False, soft_wrap=True)


def _described(reader: str) -> str:
    return f"{reader}:PATH {_options(READERS[reader])}".strip()


def _options(function: Callable[..., object]) -> str:
    known = accepted(function, (*HIDDEN, "federation"))
    return " ".join(f"{key}={'' if p.default is None else p.default}" for key, p in known.items())


def summary(federation: Federation) -> str:
    """The federation in a line or two: its size, groups and truth."""
    groups = 0 if federation.groups is None else len(set(federation.groups))
    parts = [f"{federation.num_clients} clients"]
    parts += [f"{groups} groups" if groups > 1 else "one group"] if groups else ["no known groups"]
    parts += [f"{len(federation.inputs)} rows of shape {tuple(federation.inputs.shape[1:])}"]
    truth = federation.truth
    if truth is None:
        parts += ["no true graph"]
    else:
        links = int((truth > 0).sum())
        parts += [f"true graph with {links} links, {'' if bool((truth == truth.T).all()) else 'not '}symmetric"]
    return "\n".join([federation.spec, ", ".join(parts), *_prepared(federation)])


def _prepared(federation: Federation) -> list[str]:
    """Of tables: what is predicted from which columns."""
    preparation = federation.preparation
    if preparation is None or not preparation.columns:
        return []
    labels = f" ({listed(preparation.labels)})" if preparation.labels else ""
    columns = listed((column.name for column in preparation.columns), most=20)
    return [f"{preparation.target.name}{labels} from {columns}"]


def _table(federation: Federation) -> Table:
    """A row per client: its group, its rows in each split, and the classes of its rows."""
    from scool_ppl.plots.federation import class_maps

    maps = class_maps(federation)
    table = Table("client")
    grouped = federation.groups is not None
    for column in [*(["group"] if grouped else []), *SPLITS]:
        table.add_column(column, justify="right")
    for split in maps:
        table.add_column(f"classes, {split}")
    sizes = [federation.sizes(split).tolist() for split in SPLITS]
    for client, name in enumerate(federation.names[:MOST_CLIENTS]):
        group = [str(federation.groups[client])] if federation.groups is not None else []
        classes = [_short(counts[client].tolist(), federation.class_names) for counts in maps.values()]
        table.add_row(name, *group, *(str(own[client]) for own in sizes), *classes)
    if federation.num_clients > MOST_CLIENTS:
        table.add_row(f"and {federation.num_clients - MOST_CLIENTS} more")
    return table


def _short(counts: list[int], names: Sequence[str] = (), most: int = 4) -> str:
    """The classes of a client: "3:21 7:19", or, where there are many, "10 classes, 2 to 9 each"."""
    found = {names[label] if names else label: count for label, count in enumerate(counts) if count}
    if len(found) <= most:
        return " ".join(f"{label}:{count}" for label, count in found.items())
    return f"{len(found)} classes, {min(found.values())} to {max(found.values())} each"
