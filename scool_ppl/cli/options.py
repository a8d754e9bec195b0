"""Options that several commands have, and those of the training, which are the fields of `Settings`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin, get_type_hints

import typer

from scool_ppl.errors import InputError
from scool_ppl.workbench.settings import Settings
from scool_ppl.zoo.load import DEFAULT_MODEL, parse_hyperparameters

_HELP = {field.name: field.metadata["help"] for field in fields(Settings)}

FederationSpec = Annotated[
    str, typer.Option("--federation", help="recipe:dataset:key=value,..., see `scool federations`")
]
NumClients = Annotated[int | None, typer.Option("--clients", help="number of clients, overrides clients= of the spec")]
DataRoot = Annotated[Path | None, typer.Option(help="folder of datasets", envvar="SCOOL_DATA")]
Download = Annotated[bool, typer.Option("--download/--no-download", help="fetch a dataset that is not there")]
Device = Annotated[str, typer.Option(help=_HELP["device"])]
Seed = Annotated[int, typer.Option(help=_HELP["seed"])]
FederationSeed = Annotated[
    int | None,
    typer.Option(
        help="of the federation alone: --seeds are counted from it, networks, batches and inference are under --seed"
    ),
]
Shard = Annotated[
    bool, typer.Option("--shard", help="under torchrun: each process holds the networks of its own clients only")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress bar")]


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of `Settings` in the place of its parameter `settings`.

    The options have the names, types, defaults and help of the fields. typer reads the signature and the annotations of
    a function, so the function that is returned carries those that it would have with every option written out.
    """
    options = [_option(name, hint) for name, hint in get_type_hints(Settings).items() if name in _HELP]
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        parameters += options if parameter.name == "settings" else [parameter]

    @wraps(command)
    def run(**given: Any) -> None:
        chosen = {option.name: given.pop(option.name) for option in options}
        command(**given, settings=Settings(**chosen))

    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in by_name} | {"return": None}
    vars(run)["__signature__"] = inspect.Signature(by_name, return_annotation=None)
    return run


def _option(name: str, hint: Any) -> inspect.Parameter:
    # Which words are allowed is for Settings and Clients to say, in their own message.
    kind = str if get_origin(hint) is Literal else hint
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=getattr(Settings, name),
        annotation=Annotated[kind, typer.Option(help=_HELP[name])],
    )


def grouped(arguments: list[str], default: str = DEFAULT_MODEL) -> list[tuple[str, list[str]]]:
    """Models, each with the NAME=VALUE that follow it; those before the first model go to the default model."""
    groups: list[tuple[str, list[str]]] = []
    for argument in arguments:
        if "=" in argument and not argument.endswith(".py"):
            if not groups:
                groups.append((default, []))
            groups[-1][1].append(argument)
        else:
            groups.append((argument, []))
    return groups or [(default, [])]


def models_of(
    arguments: list[str], most: int | None = None, default: str = DEFAULT_MODEL
) -> list[tuple[str, dict[str, Any]]]:
    """Models with the hyperparameters chosen for each."""
    groups = grouped(arguments, default)
    if most is not None and len(groups) > most:
        names = ", ".join(name for name, _ in groups)
        raise InputError(f"{len(groups)} models were given ({names}), expected {most}; use `scool compare` for several")
    return [(model, parse_hyperparameters(model, pairs)) for model, pairs in groups]
