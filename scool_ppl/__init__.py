"""Cooperation graphs between learning clients as Pyro programs, inferred while the clients train.

Names are imported when they are first used: torch and Pyro take seconds, which no list of commands should cost. What they
are is written in `__init__.pyi`, for type checkers and for this file.
"""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text())
_PLACES = {
    alias.asname or alias.name: (node.module, alias.name)
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("scool_ppl.base.describe").own_version()
    module, attribute = _PLACES.get(name, (__name__, name))
    if module == __name__:  # a room
        if name.startswith("_") or not name.isidentifier() or find_spec(f"{module}.{attribute}") is None:
            raise AttributeError(f"module 'scool_ppl' has no attribute '{name}'")
        globals()[name] = import_module(f"{module}.{attribute}")
    else:
        globals()[name] = getattr(import_module(module), attribute)
    return globals()[name]


__all__ = sorted(_PLACES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
