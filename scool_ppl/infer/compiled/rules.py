"""Rules: what functions of torch do to forms, each a method under torch's name of the function."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from scool_ppl.infer.compiled.forms import Form, UnsupportedError, added, product, rows_of
from scool_ppl.infer.compiled.record import Exp, Record, Step
from scool_ppl.infer.distributions import NEVER, softplus


class Rules:
    """Each rule takes what the function of its name was called with, and gives what came out as a form.

    That may be narrower than what came out: whoever asks broadcasts it.
    """

    def __init__(self, record: Record) -> None:
        self.record = record

    def add(self, a: Any, b: Any, *, alpha: float = 1) -> Form:
        return added(self.record.axes, [self.record.form(a), self.record.form(b).scaled(alpha)])

    radd = add

    def sub(self, a: Any, b: Any, *, alpha: float = 1) -> Form:
        return self.add(a, b, alpha=-alpha)

    def rsub(self, a: Any, b: Any) -> Form:
        return self.sub(b, a)

    def neg(self, a: Any) -> Form:
        return self.record.form(a).scaled(-1)

    def mul(self, a: Any, b: Any) -> Form:
        return self._product(self.record.form(a), self.record.form(b))

    rmul = multiply = mul

    def div(self, a: Any, b: Any) -> Form:
        if isinstance(b, Tensor):
            known = self.record.known(b)
            if isinstance(known, Form | Exp):
                raise UnsupportedError("division by a moment")
            inverse = b.reciprocal()
            if known is not None:
                self.record.step(inverse, Step(torch.reciprocal, (b,), {}, None))
            return self.mul(a, inverse)
        return self.record.form(a).scaled(1 / b)

    truediv = true_divide = div

    def square(self, a: Any) -> Form:
        return self.mul(a, a)

    def pow(self, a: Any, exponent: Any) -> Form:
        if isinstance(exponent, Tensor) or exponent != 2:
            raise UnsupportedError(f"a moment to the power of {exponent}")
        return self.mul(a, a)

    def sum(self, x: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None, dtype: Any = None) -> Form:
        form, dim = self.record.form(x), axis if dim is None else dim
        depth = len(form.axes)
        dims = range(depth) if dim is None or dim == () else [dim] if isinstance(dim, int) else dim
        gone = {place % depth for place in dims} if depth else set()
        result = product(
            self.record.axes, [form], [range(depth)], [place for place in range(depth) if place not in gone]
        )
        if keepdim:
            for place in sorted(gone):
                result = Form(result.axes[:place] + (None,) + result.axes[place:], result.terms)
        return result

    def mean(self, x: Tensor, dim: Any = None, keepdim: bool = False) -> Form:
        total = self.sum(x, dim, keepdim)
        count = math.prod(1 if axis is None else self.record.axes.sizes[axis] for axis in total.axes)
        return total.scaled(count / x.numel())

    def einsum(self, equation: str, *operands: Any) -> Form:
        given = list(operands[0]) if isinstance(operands[0], list | tuple) else list(operands)
        forms = [self.record.form(x) for x in given]
        inputs, _, output = equation.replace(" ", "").partition("->")
        if "->" not in equation:
            raise UnsupportedError("einsum without an output")
        spread = 0
        names: list[list[Hashable]] = []
        for part, form in zip(inputs.split(","), forms, strict=True):
            front, dots, back = part.partition("...")
            depth = len(form.axes) - len(front) - len(back)
            spread = max(spread, depth)
            names.append([*front, *(("dots", place) for place in range(-depth, 0)), *back] if dots else [*front])
        front, dots, back = output.partition("...")
        out: list[Hashable] = [*front, *((("dots", place) for place in range(-spread, 0)) if dots else ()), *back]
        return product(self.record.axes, forms, names, out)

    def matmul(self, a: Tensor, b: Tensor) -> Form:
        first, second = self.record.form(a), self.record.form(b)
        names: list[list[Hashable]] = [
            [*range(-len(first.axes), -2), *(["row"] if len(first.axes) > 1 else []), "shared"],
            [*range(-len(second.axes), -2), "shared", *(["column"] if len(second.axes) > 1 else [])],
        ]
        depth = max(len(first.axes), len(second.axes))
        out = [*range(-depth, -2), *(name for name in ("row", "column") if name in names[0] + names[1])]
        return product(self.record.axes, [first, second], names, out)

    mm = bmm = mv = dot = matmul

    def rmatmul(self, a: Tensor, b: Tensor) -> Form:
        return self.matmul(b, a)

    def unsqueeze(self, x: Tensor, dim: int) -> Form | Exp:
        place = dim % (x.dim() + 1)
        return self._shaped(x, lambda form: Form((*form.axes[:place], None, *form.axes[place:]), form.terms))

    def squeeze(self, x: Tensor, dim: Any = None) -> Form | Exp:
        dims = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
        gone = {place % x.dim() for place in dims if x.shape[place] == 1}
        return self._shaped(
            x, lambda form: Form(tuple(a for place, a in enumerate(form.axes) if place not in gone), form.terms)
        )

    def permute(self, x: Tensor, *dims: Any) -> Form | Exp:
        order = dims[0] if isinstance(dims[0], list | tuple) else dims
        return self._shaped(x, lambda form: Form(tuple(form.axes[place] for place in order), form.terms))

    def transpose(self, x: Tensor, first: int, second: int) -> Form | Exp:
        order = list(range(x.dim()))
        order[first], order[second] = order[second], order[first]
        return self.permute(x, order)

    swapaxes = swapdims = transpose

    def t(self, x: Tensor) -> Form | Exp:
        return self.permute(x, list(reversed(range(x.dim()))))

    T = t

    def mT(self, x: Tensor) -> Form | Exp:  # noqa: N802
        return self.transpose(x, -2, -1)

    def expand(self, x: Tensor, *shape: Any) -> Form | Exp:
        return self._shaped(x, lambda form: form)  # the recorder broadcasts to what came out

    expand_as = broadcast_to = expand

    def reshape(self, x: Tensor, *shape: Any) -> Form | Exp:
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        sizes = list(x.reshape(*wanted).shape) if wanted else []
        if [size for size in sizes if size != 1] != [size for size in x.shape if size != 1]:
            raise UnsupportedError(f"a moment of shape {tuple(x.shape)} as one of shape {tuple(sizes)}")

        def change(form: Form) -> Form:
            long = iter([axis for axis, size in zip(form.axes, x.shape, strict=True) if size != 1])
            return Form(tuple(None if size == 1 else next(long) for size in sizes), form.terms)

        return self._shaped(x, change)

    view = reshape

    def to(self, x: Tensor, *like: Any, **options: Any) -> Form | Exp:
        return self._shaped(x, lambda form: form)

    double = type = type_as = contiguous = clone = as_tensor = to

    def getitem(self, x: Tensor, index: Any) -> Form | Exp:
        if isinstance(index, Tensor) and index.dtype == torch.long and self.record.known(index) is None:
            known = self.record.rows(index, x.shape[0])
            return self._shaped(x, lambda form: rows_of(self.record.axes, form, known))
        parts = index if isinstance(index, tuple) else (index,)
        if any(part is not None and part is not Ellipsis and part != slice(None) for part in parts):
            raise UnsupportedError("a part of a moment")
        plain = sum(part == slice(None) for part in parts if part is not None and part is not Ellipsis)
        filler = [slice(None)] * (x.dim() - plain)
        place = parts.index(Ellipsis) if Ellipsis in parts else len(parts)
        full = [*parts[:place], *filler, *parts[place + 1 :]]

        def change(form: Form) -> Form:
            old = iter(form.axes)
            return Form(tuple(None if part is None else next(old) for part in full), form.terms)

        return self._shaped(x, change)

    def where(self, condition: Tensor, x: Any, y: Any) -> Form:
        if self.record.known(condition) is not None:
            raise UnsupportedError("where of what is to be inferred")
        if bool(condition.all()):
            return self.record.form(x)
        return added(self.record.axes, [self._chosen(condition, x), self._chosen(~condition, y)])

    def _chosen(self, condition: Tensor, x: Any) -> Form:
        """x where the condition holds, else 0."""
        if not isinstance(x, Tensor) or self.record.known(x) is None:
            value = torch.where(condition, x, 0.0)
            return self.record.form(value) if bool((value != 0).any()) else Form.number(0.0)
        return self.mul(condition, x)

    def masked_fill(self, x: Tensor, mask: Tensor, value: Any) -> Form:
        return self.where(mask, value, x)

    def log(self, x: Tensor) -> Form:
        known = self.record.known(x)
        if not isinstance(known, Exp):
            raise UnsupportedError("the logarithm of a moment")
        return known.log

    def xlogy(self, x: Any, y: Tensor) -> Form:
        known = self.record.known(y)
        if isinstance(known, Form):
            raise UnsupportedError("the logarithm of a moment")
        if isinstance(known, Exp):
            return self._product(self.record.form(x), known.log)
        value = y.log().clamp(min=NEVER)
        if known is not None:
            self.record.step(value, Step(lambda p: p.log().clamp(min=NEVER), (y,), {}, None))
        return self.mul(x, value)

    def binary_cross_entropy_with_logits(
        self, x: Tensor, target: Tensor, weight: Any = None, *others: Any, reduction: str = "mean", **options: Any
    ) -> Form:
        """softplus(x) - target x, which is linear in the target."""
        known = self.record.known(x)
        weighted = weight is not None or options.get("pos_weight") is not None or bool(others)
        if isinstance(known, Form | Exp) or reduction != "none" or weighted:
            raise UnsupportedError("a cross-entropy that is not linear in the moments")
        soft = softplus(x)
        if known is not None:
            self.record.step(soft, Step(softplus, (x,), {}, None))
        return added(self.record.axes, [self.record.form(soft), self.mul(target, x).scaled(-1)])

    def _product(self, first: Form, second: Form) -> Form:
        """Number by number, broadcast against each other."""
        depth = max(len(first.axes), len(second.axes))
        names = [range(depth - len(form.axes), depth) for form in (first, second)]
        return product(self.record.axes, [first, second], names, range(depth))

    def _shaped(self, x: Tensor, change: Callable[[Form], Form]) -> Form | Exp:
        """What changes a shape only does the same to a logarithm."""
        known = self.record.known(x)
        return Exp(change(known.log)) if isinstance(known, Exp) else change(self.record.form(x))
