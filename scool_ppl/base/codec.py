"""Named tuples and dataclasses as JSON with their tensors beside it, and back, checked against the declared types."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from scool_ppl.errors import InputError

Tensors = dict[str, Tensor]

Row = dict[str, Any]
"""An object of JSON: a row of a history, a summary, a request."""


def encode(value: Any, tensors: Tensors, path: str) -> Any:
    """The value as JSON; its tensors go into `tensors`, named by where they were found."""
    if isinstance(value, Tensor):
        return _put(value, tensors, path)
    if names := _fields(type(value)):
        return {name: encode(getattr(value, name), tensors, _below(path, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): encode(item, tensors, _below(path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item, tensors, _below(path, place)) for place, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"{path} is a {type(value).__name__}, expected tensors, numbers, texts and tables of them")


def decode(hint: Any, value: Any, tensors: Tensors, path: str) -> Any:
    """The inverse for the type `hint`; JSON of any other form is refused. A field may be missing if it has a default."""
    if hint is Any:
        return value
    if hint is Tensor:
        return _take(value, tensors, path)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _first(inner, value, tensors, path)
    if origin is Literal and value in inner:
        return value
    if origin is dict and isinstance(value, dict):
        return {_key(inner[0], key, path): decode(inner[1], value[key], tensors, _below(path, key)) for key in value}
    if origin in (list, tuple) and isinstance(value, list):
        if origin is list or inner[1:] == (Ellipsis,):
            inner = inner[:1] * len(value)
        if len(inner) == len(value):
            items = zip(inner, value, strict=True)
            return origin(decode(kind, item, tensors, _below(path, place)) for place, (kind, item) in enumerate(items))
    if (names := _fields(hint)) and isinstance(value, dict):
        return hint(**dict(_members(hint, names, value, tensors, path)))
    if type(value) is hint and hint in (bool, int, float, str, type(None)):
        return value
    if hint is float and type(value) is int:
        return float(value)
    expected = f"one of {', '.join(map(str, inner))}" if origin is Literal else getattr(hint, "__name__", hint)
    raise InputError(f"{path} is {_short(value)}, expected {expected}")


def _members(hint: Any, names: tuple[str, ...], value: Any, tensors: Tensors, path: str) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(hint)
    if unknown := sorted(value.keys() - set(names)):
        raise InputError(f"{path} has {_short(unknown[0])}, expected only {', '.join(names)}")
    for name in names:
        if name in value:
            yield name, decode(hints[name], value[name], tensors, _below(path, name))
        elif not _has_default(hint, name):
            raise InputError(f"{path} lacks {name}, expected {', '.join(names)}")


def _fields(kind: Any) -> tuple[str, ...]:
    if not isinstance(kind, type):
        return ()
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return getattr(kind, "_fields", ())


def _has_default(kind: Any, name: str) -> bool:
    if not dataclasses.is_dataclass(kind):
        return name in kind._field_defaults
    (field,) = (field for field in dataclasses.fields(kind) if field.name == name)
    return not (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING)


def _put(value: Tensor, tensors: Tensors, path: str) -> dict[str, Any]:
    """Rounding may depend on the order of the dimensions in memory, so that is kept, too."""
    value = value.detach()
    strides, plain = value.stride(), list(range(value.dim()))
    order = sorted(plain, key=lambda axis: -strides[axis])
    if value.is_contiguous() or not value.permute(order).is_contiguous():
        order = plain
    while path in tensors:
        path += "+"
    # A copy: two names may share one memory, which safetensors refuses.
    tensors[path] = value.cpu().permute(order).clone(memory_format=torch.contiguous_format)
    found: dict[str, Any] = {"tensor": path}
    if order != plain:
        found["order"] = order
    if value.device.type != "cpu":
        found["device"] = str(value.device)
    return found


def _take(value: Any, tensors: Tensors, path: str) -> Tensor:
    name = value.get("tensor") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in tensors:
        raise InputError(f"{path} is {_short(value)}, expected the name of a tensor in the file beside it")
    plain = list(range(tensors[name].dim()))
    order = decode(list[int], value.get("order", plain), {}, path)
    if sorted(order) != plain:
        raise InputError(f"{path} has its dimensions in the order {_short(str(order))}, expected some order of {plain}")
    # The clone has memory of torch's own alignment, on which rounding may depend.
    found = tensors[name].clone().permute([order.index(axis) for axis in plain])
    return found.to(decode(str, value.get("device", "cpu"), {}, path))


def _first(hints: tuple[Any, ...], value: Any, tensors: Tensors, path: str) -> Any:
    for hint in sorted(hints, key=lambda hint: hint is float):  # an int stays one where both are allowed
        try:
            return decode(hint, value, tensors, path)
        except InputError as error:
            last = error
    raise last


def _key(hint: Any, key: str, path: str) -> Any:
    if hint is int:
        if not (key.isascii() and key.isdigit() and len(key) < 19):
            raise InputError(f"{path} has the key {_short(key)}, expected a whole number")
        return int(key)
    return key


def _below(path: str, name: object) -> str:
    return f"{path}/{name}" if path else str(name)


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:40]}..."
