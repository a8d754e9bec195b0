"""Recording: what a program does with the moments of its sites, written down as a sum of products.

What it does with its parameters alone is kept as it is, to be done again when they change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from scool_ppl.infer.compiled.forms import Form, UnsupportedError
from scool_ppl.infer.compiled.record import Exp, Record, Ref, Step
from scool_ppl.infer.compiled.rules import Rules

_READS = {
    *("item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__", "__array__", "__contains__"),
    *("equal", "allclose", "is_nonzero", "nonzero", "argmax", "argmin", "argsort", "sort", "unique", "masked_select"),
}
"""What makes a program's course or shapes depend on values."""

_SHAPES = {
    *("new_zeros", "new_ones", "new_full", "new_empty", "new_tensor"),
    *("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like"),
}
"""What takes a tensor's shape and kind, not its values."""


class Recorder(TorchFunctionMode):
    """Writes down what a program does with certain tensors: moments of its sites, and its parameters."""

    def __init__(self, moments: Mapping[str, tuple[Tensor, bool]], parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.record = Record()
        self._rules = Rules(self.record)
        for name, (value, logarithm) in moments.items():
            form = Form.of(self.record.axes, name, value.shape)
            self.record.remember(value, Exp(form) if logarithm else form)
        for name, value in parameters.items():
            self.record.remember(value, Ref(name))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        found = [known for x in _tensors((args, kwargs)) if (known := self.record.known(x)) is not None]
        name = _name(func) if found else ""
        if found and name not in _SHAPES:
            outs = _tensors([out])
            if name in _READS:
                raise UnsupportedError(f"'{name}' of what is inferred or learned")
            if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or "out" in kwargs:
                raise UnsupportedError(f"'{name}', which writes into a tensor")
            if all(isinstance(each, Ref) for each in found):
                for place, each in enumerate(outs):
                    self.record.step(each, Step(func, args, kwargs, None if each is out else place))
            elif name == "broadcast_tensors":
                for x, each in zip(args[0] if isinstance(args[0], list | tuple) else args, outs, strict=True):
                    self._spread(x, each)
            elif outs and self.record.known(outs[0]) is None:  # `to` and others may return what they were given
                self._formed(name, args, kwargs, outs)
        return out

    def _spread(self, x: Tensor, out: Tensor) -> None:
        """One of several tensors that are broadcast together."""
        known = self.record.known(x)
        if isinstance(known, Ref):
            self.record.step(out, Step(torch.broadcast_to, (x, out.shape), {}, None))
        elif known is not None:
            self._formed("broadcast_to", (x,), {}, [out])

    def _formed(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], outs: list[Tensor]) -> None:
        rule = getattr(self._rules, name.strip("_"), None)
        if rule is None:
            raise UnsupportedError(f"'{name}' of a moment")
        try:
            form = rule(*args, **kwargs)
        except (TypeError, ValueError, LookupError, RuntimeError, AttributeError) as problem:
            raise UnsupportedError(f"'{name}' with these arguments") from problem
        expanded = partial(self._expanded, shape=outs[0].shape)
        self.record.remember(outs[0], Exp(expanded(form.log)) if isinstance(form, Exp) else expanded(form))

    def _expanded(self, form: Form, shape: Sequence[int]) -> Form:
        """Broadcast to a shape: a dimension along which nothing changes gets a name, and no factor has it."""
        missing = len(shape) - len(form.axes)
        named = [
            self.record.axes.new(size) if axis is None and size > 1 else axis
            for axis, size in zip((None,) * missing + form.axes, shape, strict=True)
        ]
        return Form(tuple(named), form.terms)


def _tensors(tree: Iterable[Any]) -> list[Tensor]:
    """All tensors in a nest of lists, tuples and dicts."""
    found: list[Tensor] = []
    for value in tree:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
        elif isinstance(value, dict):
            found += _tensors(value.values())
    return found


def _name(func: Any) -> str:
    """torch's name of a function, of a property that of the property."""
    name = getattr(func, "__name__", type(func).__name__)
    return func.__self__.__name__ if name == "__get__" else name
