"""Models by name or path: a file with `build(num_clients, **hyperparameters) -> CooperationModel`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from scool_ppl.base.arguments import check_hint, check_kind, check_whole
from scool_ppl.base.options import accepted, declared, parse_options
from scool_ppl.base.plugins import beside_package, load_python, user_code
from scool_ppl.data.federation import Federation
from scool_ppl.data.roster import Roster
from scool_ppl.deploy.portfolio import Portfolio
from scool_ppl.em.model import CooperationModel
from scool_ppl.errors import InputError, unknown
from scool_ppl.graph.scores import same_group

FACTS: dict[str, Callable[[Federation | Roster], Any]] = {
    "truth": lambda federation: true_graph(federation),
    "samples": lambda federation: federation.sizes("train"),
    "client_regions": lambda federation: None if federation.regions is None else torch.tensor(federation.regions),
}
"""Parameters of `build` that are facts of the federation, not choices of the user."""

OF_PAIRS = ("truth",)
"""Those of them that are (K, K); the others are (K,)."""

RATE = "clients_rate"
"""Another one, a fact of how the clients train."""

HIDDEN = ("num_clients", *FACTS, RATE)


def true_graph(federation: Federation | Roster) -> Tensor | None:
    """The true graph, also of so many clients that their federation leaves it to the groups."""
    if federation.truth is None and federation.groups is not None:
        return same_group(federation.groups).float()
    return federation.truth


DEFAULT_MODEL = "hedge"
"""What is fitted where nobody names a model; experiments/robustness says how it does in which world."""


def models_folder() -> Path:
    """The built-in models."""
    return beside_package("models")


def model_names() -> list[str]:
    """Names of the built-in models."""
    return sorted(path.stem for path in models_folder().glob("*.py"))


def model_path(model: str | os.PathLike[str]) -> Path:
    """The file of a model: a built-in name, or the path of a .py file; both are loaded alike."""
    if not isinstance(model, str | os.PathLike):
        raise InputError(f"model is {model!r}, expected a name or the path of a .py file; `scool models` lists names")
    text = os.fspath(model)
    if text.endswith(".py") or os.sep in text:
        path = Path(text).expanduser()
        if not path.is_file():
            raise InputError(
                f"no model file at '{path}'; give the path of a .py file or one of: {', '.join(model_names())}"
            )
        return path
    if text not in model_names():
        raise unknown("model", text, model_names())
    return models_folder() / f"{text}.py"


def load_module(model: str | os.PathLike[str]) -> ModuleType:
    """The module of a model file, loaded by path and not registered under any importable name."""
    return load_python(model_path(model), "build", "num_clients, **hyperparameters")


def _check_fact(name: str, value: Any, num_clients: int) -> None:
    """A fact that is given by hand has an entry for each client, or for each pair of clients."""
    shape, expected = getattr(value, "shape", None), (num_clients,) * (2 if name in OF_PAIRS else 1)
    if shape is None or tuple(shape) != expected:
        found = type(value).__name__ if shape is None else f"of shape {tuple(shape)}"
        each = "pair of clients" if name in OF_PAIRS else "client"
        raise InputError(f"{name} is {found}, expected a tensor {expected}, an entry for each {each}")


def hyperparameters(model: str | os.PathLike[str]) -> dict[str, inspect.Parameter]:
    """What `build` accepts besides `num_clients` and the federation's facts."""
    return accepted(load_module(model).build, HIDDEN)


def load_model(
    model: str | os.PathLike[str],
    num_clients: int,
    *,
    federation: Federation | Roster | None = None,
    clients_rate: float | None = None,
    **choices: Any,
) -> CooperationModel | Portfolio:
    """Build a model or a portfolio by name or path; unknown hyperparameters are refused with the nearest known name.

    `federation` supplies the facts that some models ask for: the true graph for `oracle`, sample counts for `fedavg`,
    regions for `covariate_sbm`; a `Roster`, clients whose data are elsewhere, does as well. `clients_rate` is that of the
    clients' steps, for `dpsgd mix=before`: 0 where these are not of plain SGD, None for the model's default.
    """
    if federation is not None:
        check_kind("federation", federation, Federation | Roster, "load_federation(spec) makes one")
        if federation.num_clients != num_clients:
            raise InputError(
                f"the federation has {federation.num_clients} clients, num_clients is {num_clients}; pass its own"
            )
    check_whole("num_clients", num_clients)
    build = load_module(model).build
    parameters, hints = inspect.signature(build).parameters, declared(build)
    facts: dict[str, Any] = {}
    if RATE in parameters and clients_rate is not None:
        facts[RATE] = clients_rate
    for name, fact in FACTS.items():
        if name in parameters and name not in choices and federation is not None:
            facts[name] = fact(federation)
        needed = name in parameters and parameters[name].default is inspect.Parameter.empty
        if needed and {**facts, **choices}.get(name) is None:
            raise InputError(
                f"model '{model}' needs {name}, which this federation does not have; "
                f"choose a federation that has it, or pass {name}="
            )
    for name in choices:
        if name not in parameters or name == "num_clients":
            raise unknown(f"hyperparameter of {Path(model).stem}", name, accepted(build, HIDDEN))
        if name in FACTS:
            _check_fact(name, choices[name], num_clients)
        else:
            check_hint(f"hyperparameter {name} of {Path(model).stem}", choices[name], hints.get(name))
    with user_code(f"build of '{model}' failed", model_path(model)):
        built = build(num_clients, **facts, **choices)
    if not isinstance(built, CooperationModel | Portfolio):
        raise InputError(
            f"build of '{model}' returned {type(built).__name__}, expected a CooperationModel or a Portfolio of them"
        )
    return built


def as_typed(model: str, choices: Mapping[str, Any]) -> str:
    """A model and what was chosen for it, settings of the training among it, as on the command line."""
    words = [f"{name} {value}" if name.startswith("--") else f"{name}={value}" for name, value in choices.items()]
    return " ".join([model, *words])


def parse_hyperparameters(model: str | os.PathLike[str], pairs: list[str]) -> dict[str, Any]:
    """`name=value` texts as hyperparameters of the model's `build`."""
    return parse_options(f"hyperparameter of {Path(model).stem}", pairs, load_module(model).build, HIDDEN)
