"""Program: a Pyro program with parameters of its own, which are learned by raising the bound, all in float64."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pyro
import torch
from pyro.nn import PyroModule
from pyro.poutine.messenger import Messenger
from pyro.poutine.runtime import _PYRO_STACK
from pyro.poutine.trace_messenger import TraceMessenger
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from scool_ppl.errors import InputError


class LocalModule(PyroModule):
    """A PyroModule that keeps its parameters to itself: nothing of it enters the global param store."""

    def __init__(self, name: str = "") -> None:
        with pyro.settings.context(module_local_params=True):
            super().__init__(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with pyro.settings.context(module_local_params=True):
            result = super().__call__(*args, **kwargs)
        refer_to_themselves()
        return result


def refer_to_themselves() -> None:
    """Sets on every Parameter that is being traced what `SVI.step` asks of it, `unconstrained`.

    Where parameters are local, Pyro sets it for PyroParams only, and takes it from those of the global store, such as an
    autoguide's, whenever a local module runs.
    """
    for handler in _PYRO_STACK:
        if isinstance(handler, TraceMessenger):
            for site in handler.trace.nodes.values():
                if site["type"] == "param" and isinstance(site["value"], Parameter):
                    setattr(site["value"], "unconstrained", weakref.ref(site["value"]))  # noqa: B010


class Program(LocalModule):
    """A Pyro program that is linear in the moments of its sites. Subclass it, write `model`.

    ``program(*args)`` runs it; it can be traced, rendered, given to Predictive or to SVI, and `NaturalGradient.fit` finds
    its posterior. Parameters declared as PyroParam or nn.Parameter are learned by raising the bound, in closed form where
    `closed_form` returns them.

    All numbers of a program are float64: bounds are compared across sweeps, and they are few beside those of networks.
    What is assigned to it becomes float64 (parameters, buffers, modules, tensors), and what `model` makes by torch's
    default is promoted.
    """

    accumulates: ClassVar[bool] = False
    """Does `closed_form` build on what the parameters were, as sums over rounds do? Then it is set once, when q has
    settled, and not after every sweep or step."""
    frozen: frozenset[str] = frozenset()
    """Parameters that are not learned: neither by gradients, nor by `closed_form`."""

    def __setattr__(self, name: str, value: Any) -> None:
        plain = isinstance(value, Tensor) and not isinstance(value, Parameter)
        super().__setattr__(name, in_double(value) if plain else value)
        if isinstance(value, nn.Module):
            value.double()
        # Parameters change in place, as by `nn.Module.double`: the start of a PyroParam is what it is in its own precision.
        parameters = self.__dict__.get("_parameters", {})
        for kept in (name, f"{name}_unconstrained"):
            if parameters.get(kept) is not None:
                parameters[kept].data = in_double(parameters[kept].data)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        super().register_buffer(name, in_double(tensor), persistent)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        if param is not None:
            param.data = in_double(param.data)
        super().register_parameter(name, param)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with promoted():
            return super().__call__(*args, **kwargs)

    def model(self, *args: Any, **kwargs: Any) -> Any:
        """The program itself: samples its sites, given what it is called with."""
        raise InputError(f"{type(self).__name__} has no `model`; write one that samples its sites")

    def closed_form(self, moments: dict[str, Tensor], *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Parameters at which the bound is highest given E[Y], E[z], ..., by name; the others follow gradients."""
        return {}

    def starts(self, *args: Any, **kwargs: Any) -> list[dict[str, Tensor]]:
        """Where q may start, each as moments by site, from what `model` is called with and a generator.

        The highest bound wins. Sites that are not named start flat, one-hot ones at random.
        """
        return []

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)

    def freeze(self, names: Collection[str]) -> None:
        """Parameters, by the names that `state` has for them, stay as they are."""
        for name in names:
            self.get_parameter(name).requires_grad_(False)
        self.frozen = self.frozen | {name.removesuffix("_unconstrained") for name in names}

    def state(self) -> dict[str, Tensor]:
        """All parameters and buffers as plain tensors."""
        return {name: value.detach().clone() for name, value in self.state_dict().items()}


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
        return value.double() if value.is_floating_point() and value.dtype != torch.float64 else value
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
