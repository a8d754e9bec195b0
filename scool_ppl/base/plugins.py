"""Running a user's Python file: what it defines, and what it raises as one line."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from scool_ppl.errors import USER_ERRORS, InputError


def beside_package(folder: str) -> Path:
    """A folder of the project: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    packed = package / f"_{folder}"
    return packed if packed.is_dir() else package.parent / folder


def load_python(path: Path, function: str, parameters: str = "scale") -> ModuleType:
    """The module of a Python file that has a function of this name."""
    name = f"scool_ppl_{function}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"cannot load '{path}' as Python, expected a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and Pyro look modules up by name
    with user_code(f"cannot load '{path}'"):
        spec.loader.exec_module(module)
    if not callable(getattr(module, function, None)):
        raise InputError(f"'{path}' has no function `{function}({parameters})`; add one")
    return module


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turns what a user's file raises into one line; the cause stays attached."""
    try:
        yield
    except InputError:
        raise
    except USER_ERRORS as error:
        raise InputError(f"{what}: {type(error).__name__}: {error}; correct the file") from error
