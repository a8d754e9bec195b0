"""`scool models`: which there are, and what one of them is."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from scool_ppl.zoo.load import hyperparameters, load_module, model_names


def models(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="a model's name or a .py file; none: list them")
    ] = None,
) -> None:
    """List models, or explain one of them.

    Its program, and the meaning of its hyperparameters.
    """
    console = Console(markup=False, highlight=False)  # brackets are the documents' own
    if model is None:
        console.print(_listing())
        return
    from scool_ppl.zoo.explain import explain

    found = explain(model)
    console.print(found.document, soft_wrap=True)
    for part in found.parts:
        console.print(f"\ntrack {part.name}" if part.name else "")
        for name, value in part.parts.items():
            console.print(f"{name:10}  {value}", soft_wrap=True)
        console.print(f"\n{part.program}", soft_wrap=True)
    if not found.hyperparameters:
        console.print("\nno hyperparameters")
        return
    table = Table("hyperparameter", "default", "type", "meaning", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for one in found.hyperparameters:
        table.add_row(*(one.name, one.default, one.kind, one.meaning or "-"))
    console.print(table)


def _listing() -> Table:
    table = Table("model", "what it is", "hyperparameters")
    for name in model_names():
        title = (inspect.getdoc(load_module(name)) or "").splitlines()[0]
        defaults = [f"{key}={parameter.default}" for key, parameter in hyperparameters(name).items()]
        table.add_row(name, title, " ".join(defaults) or "-")
    return table
