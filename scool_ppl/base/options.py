"""`name=value` texts as keyword arguments of a function, of the types that its signature declares."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from scool_ppl.base.arguments import alternatives, in_words
from scool_ppl.errors import InputError, unknown


def accepted(function: Callable[..., Any], hidden: Collection[str] = ()) -> dict[str, inspect.Parameter]:
    """The parameters of `function` that a user may set by name."""
    parameters = inspect.signature(function).parameters
    return {name: parameter for name, parameter in parameters.items() if name not in hidden}


ANYTHING = int | float | bool | str | None
"""What a parameter takes whose default, None, says nothing, and which has no annotation."""


def declared(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of a function's parameters by its annotations, of those that can be told; None where it is the default."""
    hints: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.annotation is not inspect.Parameter.empty:
            alone = types.FunctionType((lambda: None).__code__, getattr(function, "__globals__", {}))
            alone.__annotations__ = {name: parameter.annotation}
            with suppress(NameError, TypeError):  # a name that only type checkers import
                hint = get_type_hints(alone)[name]
                hints[name] = Union[hint, None] if parameter.default is None else hint  # noqa: UP007
    return hints


def parse_options(
    kind: str, pairs: Iterable[str], function: Callable[..., Any], hidden: Collection[str] = ()
) -> dict[str, Any]:
    """Keyword arguments for `function` from texts like "groups=4"; `kind` names them in errors."""
    known = accepted(function, hidden)
    hints = declared(function)
    values: dict[str, Any] = {}
    for pair in pairs:
        name, sign, text = (part.strip() for part in pair.partition("="))
        if not sign:
            raise InputError(f"'{pair}' is not a {kind}; write name=value with one of: {', '.join(known) or 'none'}")
        if name not in known:
            raise unknown(kind, name, known)
        if name in values:
            raise InputError(f"{kind} {name} was given twice, expected once; remove one")
        default = known[name].default
        values[name] = _value(f"{kind} {name}", text, hints.get(name, ANYTHING if default is None else type(default)))
    return values


def _value(what: str, text: str, hint: Any) -> Any:
    choices = alternatives(hint)
    if type(None) in choices and text.lower() == "none":
        return None
    for choice in choices:
        if get_origin(choice) is Literal:
            if text not in get_args(choice):
                raise unknown(f"{what} value", text, get_args(choice))
            return text
        if choice is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if choice in (int, float, str):
            with suppress(ValueError):
                value = choice(text)
                if isinstance(value, str) or (math.isfinite(value) if choice is float else abs(value) < 2**63):
                    return value
    raise InputError(f"{what} is '{text}', expected {in_words(hint)}")
