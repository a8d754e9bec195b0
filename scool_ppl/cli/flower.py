"""`scool flower`: runs over silos that keep their data, with Flower's commands to begin and to serve them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from scool_ppl.cli.options import Seed
from scool_ppl.errors import InputError
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.silos import OWN, check_silo, run_config

commands = typer.Typer(invoke_without_command=True, rich_markup_mode=None)

PYPROJECT = """\
# Who learns from whom, over silos that keep their data. `flwr run` begins a run; --run-config sets what is below.
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "scool-app"
version = "0.1.0"
description = "Cooperation graphs between silos"
license = "Apache-2.0"
dependencies = []  # installed anew at every run by a SuperLink; scool_ppl is there already, at the silos, too

[tool.hatch.build.targets.wheel]
packages = ["scool_app"]

[tool.flwr.app]
publisher = "scool"

[tool.flwr.app.components]
serverapp = "scool_app.server_app:app"
clientapp = "scool_app.client_app:app"

[tool.flwr.app.config]
# clients: how many silos; out: the run's folder at the coordinator, an absolute path; model: as "scool_sbm blocks=4"
# timeout: seconds until who is silent is left out of a round; wait: seconds for all to come; task: where files differ
# federation: in a simulation, whose parts the nodes have
"""
FILES = {
    "scool_app/__init__.py": "",
    "scool_app/server_app.py": '''"""The coordinator."""

from scool_ppl.far.flower import server_app
from scool_ppl.workbench.silos import drive

app = server_app(drive)
''',
    "scool_app/client_app.py": '''"""A silo."""

from scool_ppl.far.flower import client_app
from scool_ppl.workbench.silos import silo

app = client_app(silo)
''',
}
"""The app, beside its pyproject.toml; Flower reads these files, and wants `app` to be assigned."""


@commands.callback()
def flower(context: typer.Context) -> None:
    """Write the Flower app of silos, or check a silo's file."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@commands.command()
def app(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the folder to write into; it must not be there yet")],
) -> None:
    """Write the Flower app: a pyproject.toml and two modules.

    `flwr run DIR` begins a run with it. Its config has the options of `scool fit` by their names.
    """
    if folder.exists():
        raise InputError(f"'{folder}' exists, expected a new folder; choose another, or delete it")
    settings = {name: value for name, value in run_config().items() if name not in OWN}
    config = "\n".join([*_assigned(OWN), "# as the options of `scool fit`", *_assigned(settings)])
    try:
        for name, text in {"pyproject.toml": f"{PYPROJECT}{config}\n", **FILES}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    except OSError as error:
        raise InputError(f"cannot write '{folder}': {error.strerror}; choose another folder") from error
    typer.echo(f"a Flower app in {folder}; `flwr run {folder}` begins a run (pip install 'scool_ppl[flower]')")


@commands.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE.npz", help="a silo's own file: inputs, targets, perhaps split")],
    classes: Annotated[
        int | None, typer.Option(help="classes of all silos together; default: as the file says")
    ] = None,
    task: Annotated[str | None, typer.Option(help="in place of --classes, e.g. regression")] = None,
    network: Annotated[str, typer.Option(help="the network of the run")] = Settings.network,
    width: Annotated[float | None, typer.Option(help="its width")] = Settings.width,
    seed: Seed = 0,
) -> None:
    """Tell the owner of a silo whether its file will do, and what the coordinator is told of it.

    Nothing leaves this machine.
    """
    if classes is not None:
        if task is not None:
            raise InputError(f"both --classes {classes} and --task {task} were given, expected one; leave one out")
        task = f"classification:num_classes={classes}"
    for name, note in check_silo(file, Settings(network=network, width=width, seed=seed), task).items():
        typer.echo(f"pass  {name}: {note}")


def _assigned(config: dict[str, str | int | float | bool]) -> list[str]:
    return [f"{name} = {json.dumps(value)}" for name, value in config.items()]
