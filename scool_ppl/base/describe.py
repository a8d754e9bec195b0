"""What things are, as texts that can be compared: settings, tensors, data, versions; and as notebooks show them."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor

_PLAIN = (bool, int, float, str, type(None))
_DEEPEST = 3


def named(value: Any) -> str:
    """The name of a function or class, of what a partial calls, or of an object's class."""
    if isinstance(value, partial):
        return named(value.func)
    return str(getattr(value, "__name__", type(value).__name__))


def natural(name: str) -> list[str | int]:
    """A key that sorts hospital 2 before hospital 10."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"([0-9]+)", name))]


def described(value: Any, depth: int = 0) -> str:
    """A class or function by its name, an object by its class and its settings; no addresses.

    Settings are what a user could have chosen otherwise: public attributes, but for modules and what they learn.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, PurePath | torch.dtype | torch.device | Enum):
        return repr(str(value))
    if depth > _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {described(item, depth + 1)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple | set | frozenset):
        items = [described(item, depth + 1) for item in value]
        return f"[{', '.join(items if isinstance(value, list | tuple) else sorted(items))}]"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
        return named(value)
    return f"{named(value)}({', '.join(settings(value, depth))})"


def settings(value: Any, depth: int = 0) -> list[str]:
    """The settings of an object as "name=value", see `described`."""
    if depth > _DEEPEST:
        return []
    if isinstance(value, partial):
        found = {str(place): item for place, item in enumerate(value.args)} | value.keywords
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        found = {name: item for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    if isinstance(value, torch.nn.Module):
        found.pop("training", None)
    return [f"{name}={described(item, depth + 1)}" for name, item in found.items()]


def signature(tensors: Mapping[str, Tensor]) -> list[str]:
    """Name, shape and dtype of each."""
    return [f"'{name}' {tuple(value.shape)} {str(value.dtype)[6:]}" for name, value in tensors.items()]


def values(tensors: Mapping[str, Tensor]) -> list[str]:
    """Name, shape and value of each."""
    return [f"{name}={_tensor(value)}" for name, value in tensors.items()]


def digest(value: Any) -> str:
    """SHA-256 of all that a value holds: tensors by shape, type and bytes, dataclasses field by field."""
    found = hashlib.sha256()
    feed(found, value)
    return found.hexdigest()


def feed(found: Any, value: Any) -> None:
    """Add a value to a digest."""
    if isinstance(value, Tensor):
        found.update(f"{tuple(value.shape)} {value.dtype}".encode())
        found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    elif isinstance(value, tuple | list):
        found.update(f"{len(value)} items".encode())
        for item in value:
            feed(found, item)
    elif dataclasses.is_dataclass(value):
        found.update(type(value).__qualname__.encode())
        feed(found, [getattr(value, field.name) for field in dataclasses.fields(value)])
    else:
        found.update((repr(value) if isinstance(value, _PLAIN) else type(value).__qualname__).encode())


def _tensor(value: Tensor) -> str:
    """A tensor by its shape and its one value, or else a digest."""
    if value.numel() and bool((value == value.flatten()[0]).all()):
        return f"{tuple(value.shape)} of {value.flatten()[0].item():.6g}"
    return f"{tuple(value.shape)} {digest(value)[:12]}"


def _array(value: np.ndarray[Any, Any]) -> str:
    """An array of numbers as a tensor, of anything else by a digest."""
    if value.dtype.kind in "biuf":
        return _tensor(torch.from_numpy(value.copy()))
    return f"{value.shape} {hashlib.sha256(repr(value.tolist()).encode()).hexdigest()[:12]}"


def listed(names: Iterable[str], between: str = ", ", most: int = 6) -> str:
    """The first of them, and how many more there are."""
    every = list(names)
    return between.join([*every[:most], *([f"and {len(every) - most} more"] if len(every) > most else [])])


def shown_html(thing: object) -> str | None:
    """What a notebook shows of the thing, a table: for its `_repr_html_`. Nothing is drawn before it is asked for."""
    from scool_ppl.plots.notebook import html

    return html(thing)


def shown_png(thing: object) -> bytes | None:
    """What a notebook shows of the thing, a picture: for its `_repr_png_`."""
    from scool_ppl.plots.notebook import png

    return png(thing)


def own_version() -> str:
    """The version of this library."""
    try:
        return version("scool_ppl")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+unknown"


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    import pyro

    return {
        "scool_ppl": own_version(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": version("torchvision"),  # importing it takes seconds
        "pyro": pyro.__version__,
        "numpy": np.__version__,
        "scipy": version("scipy"),
        "scikit-learn": version("scikit-learn"),
    }
