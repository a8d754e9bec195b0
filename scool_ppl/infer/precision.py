"""Precision: a user's program runs in float64, whatever precision its constants were made in."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.distributions import Distribution
from torch.overrides import TorchFunctionMode

DOUBLE = torch.float64


@contextmanager
def promoted() -> Iterator[None]:
    """In here torch's functions take tensors of several precisions, and what is sampled is float64.

    Both are this thread's alone, and what runs without them runs as it would have: no default of torch is changed.
    """
    with _Calls(), _Sites():
        yield


def in_double(value: Any) -> Any:
    """A tensor of floating-point numbers as float64, a distribution with such tensors; anything else as it is."""
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() and value.dtype != DOUBLE else value
    if not isinstance(value, Distribution):
        return value
    changed = {name: new for name, old in vars(value).items() if (new := in_double(old)) is not old}
    if not changed:
        return value
    finer = copy.copy(value)
    vars(finer).update(changed)
    return finer


class _Calls(TorchFunctionMode):
    """A call that torch refuses for the sake of mixed precisions is done again in the finest of them.

    torch promotes sums and products of mixed precisions by itself, and refuses products of matrices. What a call writes
    into keeps its precision.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        try:
            return func(*args, **kwargs)
        except RuntimeError:
            mixed = {x.dtype for x in _floats((args, kwargs))}
            if len(mixed) < 2:
                raise
            name = getattr(func, "__name__", "")
            writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
            dtype = args[0].dtype if writes else max(mixed, key=lambda kind: torch.finfo(kind).bits)
            return func(*_cast(args, dtype), **_cast(kwargs, dtype))


class _Sites(Messenger):
    """Distributions of sample sites in float64, and so what is drawn from them, and what is observed."""

    def _pyro_sample(self, msg: Any) -> None:
        if isinstance(msg["fn"], Distribution):
            msg["fn"], msg["value"] = in_double(msg["fn"]), in_double(msg["value"])


def _floats(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        if tree.is_floating_point():
            yield tree
    elif isinstance(tree, dict | list | tuple):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _floats(value)


def _cast(tree: Any, dtype: torch.dtype) -> Any:
    if isinstance(tree, Tensor):
        return tree.to(dtype) if tree.is_floating_point() and tree.dtype != dtype else tree
    if isinstance(tree, dict):
        return {key: _cast(value, dtype) for key, value in tree.items()}
    return type(tree)(_cast(value, dtype) for value in tree) if type(tree) in (list, tuple) else tree
