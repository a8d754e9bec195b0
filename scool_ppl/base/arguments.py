"""Is an argument what it should be? Numbers that are NaN or infinite never are."""

from __future__ import annotations

import math
import numbers
import types
from collections.abc import Collection
from typing import Any, Literal, Union, get_args, get_origin

from scool_ppl.errors import InputError, unknown


def positive(*values: object) -> bool:
    """Finite numbers above 0."""
    return all(finite(value) and value > 0 for value in values)  # type: ignore[operator]


def finite(*values: object) -> bool:
    """Finite numbers."""
    return all(isinstance(value, numbers.Real) and math.isfinite(value) for value in values)


def whole(*values: object, least: int = 1) -> bool:
    """Whole numbers of at least `least`; True and False are none."""
    return all(isinstance(v, numbers.Integral) and not isinstance(v, bool) and int(v) >= least for v in values)


def check_whole(what: str, value: object, least: int = 1) -> None:
    """Raises InputError unless it is a whole number of at least `least`."""
    if not whole(value, least=least):
        raise InputError(f"{what} is {value!r}, expected a whole number of at least {least}")


def check_kind(what: str, value: object, kind: type | types.UnionType, remedy: str) -> None:
    """Raises InputError unless it is of this class."""
    if not isinstance(value, kind):
        found = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
        expected = " or ".join(each.__name__ for each in get_args(kind) or (kind,))
        raise InputError(f"{what} is {found}, expected a {expected}; {remedy}")


def check_names(what: str, value: object) -> None:
    """Raises InputError unless it is a collection of names, which one text is not."""
    if isinstance(value, str):
        raise InputError(f"{what} is the text '{value}', expected a list of names; write ['{value}']")
    check_kind(what, value, Collection, "write a list of names")


def check_hint(what: str, value: Any, hint: Any) -> None:
    """Raises InputError unless a value is of a simple type that a signature declares; other types are not looked at."""
    choices = alternatives(hint)
    known = [kind for kind in choices if get_origin(kind) is Literal or kind in (int, float, str, bool, type(None))]
    if len(known) < len(choices) or any(_is(value, kind) for kind in choices):
        return
    named = [kind for kind in choices if get_origin(kind) is Literal]
    if named and isinstance(value, str):
        raise unknown(f"{what} value", value, get_args(named[0]))
    raise InputError(f"{what} is {value!r}, expected {in_words(hint)}")


def _is(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is float:
        return finite(value) and not isinstance(value, bool)
    return whole(value, least=-(2**63)) if kind is int else isinstance(value, kind)


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of which a value may be any; of a type that is no union, itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def in_words(hint: Any) -> str:
    """A type in plain words."""
    choices = alternatives(hint)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "none"}
    texts = {kind: "one of " + ", ".join(get_args(kind)) for kind in choices if get_origin(kind) is Literal}
    return " or ".join({**words, **texts}.get(kind, getattr(kind, "__name__", str(kind))) for kind in choices)
