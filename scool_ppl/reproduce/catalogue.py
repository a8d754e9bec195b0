"""Experiments by name or path: a file with `experiment(scale) -> Experiment`."""

from __future__ import annotations

import inspect
import os
from dataclasses import replace
from pathlib import Path

from scool_ppl.base.plugins import beside_package, load_python, user_code
from scool_ppl.errors import InputError, unknown
from scool_ppl.reproduce.experiment import SCALES, Experiment


def experiments_folder() -> Path:
    """The experiments: inside the installed package, or beside it in a checkout."""
    return beside_package("experiments")


def experiment_names() -> list[str]:
    """Names of the experiments."""
    return sorted(_files())


def _files() -> dict[str, Path]:
    """The experiments' files, also those of folders of their own, by name; benchmarks are none."""
    folder = experiments_folder()
    found = {path.stem: path for path in [*folder.glob("*.py"), *folder.glob("*/*.py")]}
    return {name: path for name, path in found.items() if "def experiment(" in path.read_text()}


def experiment_title(name: str) -> str:
    """The first line of an experiment's file."""
    return (inspect.getdoc(load_python(_path(name), "experiment")) or "").partition("\n")[0]


def load_experiment(name: str | os.PathLike[str], scale: str) -> Experiment:
    """The experiment at a scale."""
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    path = _path(os.fspath(name))
    module = load_python(path, "experiment")
    with user_code(f"experiment of '{name}' failed", path):
        made = module.experiment(scale)
    if not isinstance(made, Experiment):
        raise InputError(f"experiment of '{name}' returned {type(made).__name__}, expected an Experiment")
    # Numbers of the papers stand beside runs on the papers' datasets only.
    return replace(made, paper={}) if scale == "smoke" else made


def _path(name: str) -> Path:
    if name.endswith(".py") or os.sep in name:
        path = Path(name).expanduser()
        if not path.is_file():
            raise InputError(f"no experiment file at '{path}'; give the path of a .py file, or see `scool reproduce`")
        return path
    files = _files()
    if name not in files:
        raise unknown("experiment", name, files)
    return files[name]
