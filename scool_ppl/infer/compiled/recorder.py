"""Recording: what a program does with the moments of its sites, written down as a sum of products.

What it does with its parameters alone is kept as it is, to be done again when they change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from scool_ppl.infer.compiled.forms import Axes, Form, RowsOf, UnsupportedError, added, product, rows_of
from scool_ppl.infer.distributions import NEVER, softplus


class Step(NamedTuple):
    """A call that involves parameters but no moments."""

    func: Callable[..., Any]
    args: Any
    kwargs: dict[str, Any]
    place: int | None
    """Which of several tensors that it returned; None where it returned one."""

    @property
    def taking(self) -> set[Hashable]:
        """The names of the tensors that take part."""
        return _references((self.args, self.kwargs))

    def repeated(self, tensors: Mapping[Hashable, Tensor]) -> Tensor:
        """Done again, with these tensors by name."""
        out: Any = self.func(*_resolved(self.args, tensors), **_resolved(self.kwargs, tensors))
        found: Tensor = out if self.place is None else out[self.place]
        return found


class Ref(NamedTuple):
    """In the arguments of a step: the tensor of this name."""

    name: Hashable


@dataclass(frozen=True)
class Exp:
    """A tensor whose logarithm is a form: what stands for a sample of a Dirichlet."""

    log: Form


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
        self.axes = Axes()
        self.steps: dict[Hashable, Step] = {}
        self.constants: dict[Hashable, Tensor] = {}
        self._known: dict[int, Form | Exp | Ref] = {}
        self._kept: list[Tensor] = []
        self._fixed: dict[int, Form] = {}
        self._rows: dict[int, RowsOf] = {}
        for name, (value, logarithm) in moments.items():
            form = Form.of(self.axes, name, value.shape)
            self._remember(value, Exp(form) if logarithm else form)
        for name, value in parameters.items():
            self._remember(value, Ref(name))

    def _remember(self, tensor: Tensor, what: Form | Exp | Ref) -> None:
        self._known[id(tensor)] = what
        self._kept.append(tensor)  # or another tensor might get its id

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        found = [self._known[id(x)] for x in _tensors((args, kwargs)) if id(x) in self._known]
        name = _name(func) if found else ""
        if found and name not in _SHAPES:
            outs = _tensors([out])
            if name in _READS:
                raise UnsupportedError(f"'{name}' of what is inferred or learned")
            if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or "out" in kwargs:
                raise UnsupportedError(f"'{name}', which writes into a tensor")
            if all(isinstance(each, Ref) for each in found):
                for place, each in enumerate(outs):
                    self._step(each, Step(func, args, kwargs, None if each is out else place))
            elif name == "broadcast_tensors":
                for x, each in zip(args[0] if isinstance(args[0], list | tuple) else args, outs, strict=True):
                    self._spread(x, each)
            elif outs and id(outs[0]) not in self._known:  # `to` and others may return what they were given
                self._formed(name, args, kwargs, outs)
        return out

    def _spread(self, x: Tensor, out: Tensor) -> None:
        """One of several tensors that are broadcast together."""
        known = self._known.get(id(x))
        if isinstance(known, Ref):
            self._step(out, Step(torch.broadcast_to, (x, out.shape), {}, None))
        elif known is not None:
            self._formed("broadcast_to", (x,), {}, [out])

    def _step(self, out: Tensor, step: Step) -> Ref:
        ref = Ref(("step", len(self.steps)))
        self.steps[ref.name] = step._replace(args=self._referred(step.args), kwargs=self._referred(step.kwargs))
        self._remember(out, ref)
        return ref

    def _referred(self, tree: Any) -> Any:
        """Arguments with references in place of what is known by name."""
        if isinstance(tree, Tensor):
            return self._known.get(id(tree), tree)
        if isinstance(tree, dict):
            return {key: self._referred(value) for key, value in tree.items()}
        if isinstance(tree, list | tuple):
            return type(tree)(self._referred(value) for value in tree) if type(tree) in (list, tuple) else tree
        return tree

    def _formed(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], outs: list[Tensor]) -> None:
        rule = getattr(self, f"_{name.strip('_')}", None)
        if rule is None:
            raise UnsupportedError(f"'{name}' of a moment")
        try:
            form = rule(*args, **kwargs)
        except (TypeError, ValueError, LookupError, RuntimeError, AttributeError) as problem:
            raise UnsupportedError(f"'{name}' with these arguments") from problem
        expanded = partial(self._expanded, shape=outs[0].shape)
        self._remember(outs[0], Exp(expanded(form.log)) if isinstance(form, Exp) else expanded(form))

    def form(self, x: Any) -> Form:
        """A number, a tensor that never changes, one of parameters, or of moments, as a form."""
        if not isinstance(x, Tensor):
            return Form.number(x)
        known = self._known.get(id(x)) or self._fixed.get(id(x))
        if isinstance(known, Exp):
            raise UnsupportedError("a Dirichlet's sample itself, not its logarithm")
        if isinstance(known, Form):
            return known
        if isinstance(known, Ref):
            return Form.of(self.axes, known.name, x.shape)
        if x.dim() == 0:
            return Form.number(float(x))
        name = ("constant", len(self.constants))
        self.constants[name] = x.detach().double().squeeze()
        self._fixed[id(x)] = form = Form.of(self.axes, name, x.shape)
        self._kept.append(x)
        return form

    def _expanded(self, form: Form, shape: Sequence[int]) -> Form:
        """Broadcast to a shape: a dimension along which nothing changes gets a name, and no factor has it."""
        missing = len(shape) - len(form.axes)
        named = [
            self.axes.new(size) if axis is None and size > 1 else axis
            for axis, size in zip((None,) * missing + form.axes, shape, strict=True)
        ]
        return Form(tuple(named), form.terms)

    def _shaped(self, x: Tensor, change: Callable[[Form], Form]) -> Form | Exp:
        """What changes a shape only does the same to a logarithm."""
        known = self._known.get(id(x))
        return Exp(change(known.log)) if isinstance(known, Exp) else change(self.form(x))

    # What the functions of torch do to forms, each under torch's name.

    def _add(self, a: Any, b: Any, *, alpha: float = 1) -> Form:
        return added(self.axes, [self.form(a), self.form(b).scaled(alpha)])

    _radd = _add

    def _sub(self, a: Any, b: Any, *, alpha: float = 1) -> Form:
        return self._add(a, b, alpha=-alpha)

    def _rsub(self, a: Any, b: Any) -> Form:
        return self._sub(b, a)

    def _neg(self, a: Any) -> Form:
        return self.form(a).scaled(-1)

    def _mul(self, a: Any, b: Any) -> Form:
        first, second = self.form(a), self.form(b)
        depth = max(len(first.axes), len(second.axes))
        names = [range(depth - len(form.axes), depth) for form in (first, second)]
        return product(self.axes, [first, second], names, range(depth))

    _rmul = _multiply = _mul

    def _div(self, a: Any, b: Any) -> Form:
        if isinstance(b, Tensor):
            known = self._known.get(id(b))
            if isinstance(known, Form | Exp):
                raise UnsupportedError("division by a moment")
            inverse = b.reciprocal()
            if known is not None:
                self._step(inverse, Step(torch.reciprocal, (b,), {}, None))
            return self._mul(a, inverse)
        return self.form(a).scaled(1 / b)

    _truediv = _true_divide = _div

    def _square(self, a: Any) -> Form:
        return self._mul(a, a)

    def _pow(self, a: Any, exponent: Any) -> Form:
        if isinstance(exponent, Tensor) or exponent != 2:
            raise UnsupportedError(f"a moment to the power of {exponent}")
        return self._mul(a, a)

    def _sum(self, x: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None, dtype: Any = None) -> Form:
        form, dim = self.form(x), axis if dim is None else dim
        depth = len(form.axes)
        dims = range(depth) if dim is None or dim == () else [dim] if isinstance(dim, int) else dim
        gone = {place % depth for place in dims} if depth else set()
        result = product(self.axes, [form], [range(depth)], [place for place in range(depth) if place not in gone])
        if keepdim:
            for place in sorted(gone):
                result = Form(result.axes[:place] + (None,) + result.axes[place:], result.terms)
        return result

    def _mean(self, x: Tensor, dim: Any = None, keepdim: bool = False) -> Form:
        total = self._sum(x, dim, keepdim)
        count = math.prod(1 if axis is None else self.axes.sizes[axis] for axis in total.axes)
        return total.scaled(count / x.numel())

    def _einsum(self, equation: str, *operands: Any) -> Form:
        given = list(operands[0]) if isinstance(operands[0], list | tuple) else list(operands)
        forms = [self.form(x) for x in given]
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
        return product(self.axes, forms, names, out)

    def _matmul(self, a: Tensor, b: Tensor) -> Form:
        first, second = self.form(a), self.form(b)
        names: list[list[Hashable]] = [
            [*range(-len(first.axes), -2), *(["row"] if len(first.axes) > 1 else []), "shared"],
            [*range(-len(second.axes), -2), "shared", *(["column"] if len(second.axes) > 1 else [])],
        ]
        depth = max(len(first.axes), len(second.axes))
        out = [*range(-depth, -2), *(name for name in ("row", "column") if name in names[0] + names[1])]
        return product(self.axes, [first, second], names, out)

    _mm = _bmm = _mv = _dot = _matmul

    def _rmatmul(self, a: Tensor, b: Tensor) -> Form:
        return self._matmul(b, a)

    def _unsqueeze(self, x: Tensor, dim: int) -> Form | Exp:
        place = dim % (x.dim() + 1)
        return self._shaped(x, lambda form: Form((*form.axes[:place], None, *form.axes[place:]), form.terms))

    def _squeeze(self, x: Tensor, dim: Any = None) -> Form | Exp:
        dims = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
        gone = {place % x.dim() for place in dims if x.shape[place] == 1}
        return self._shaped(
            x, lambda form: Form(tuple(a for place, a in enumerate(form.axes) if place not in gone), form.terms)
        )

    def _permute(self, x: Tensor, *dims: Any) -> Form | Exp:
        order = dims[0] if isinstance(dims[0], list | tuple) else dims
        return self._shaped(x, lambda form: Form(tuple(form.axes[place] for place in order), form.terms))

    def _transpose(self, x: Tensor, first: int, second: int) -> Form | Exp:
        order = list(range(x.dim()))
        order[first], order[second] = order[second], order[first]
        return self._permute(x, order)

    _swapaxes = _swapdims = _transpose

    def _t(self, x: Tensor) -> Form | Exp:
        return self._permute(x, list(reversed(range(x.dim()))))

    _T = _t

    def _mT(self, x: Tensor) -> Form | Exp:  # noqa: N802
        return self._transpose(x, -2, -1)

    def _expand(self, x: Tensor, *shape: Any) -> Form | Exp:
        return self._shaped(x, lambda form: form)  # `_formed` broadcasts to what came out

    _expand_as = _broadcast_to = _expand

    def _reshape(self, x: Tensor, *shape: Any) -> Form | Exp:
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        sizes = list(x.reshape(*wanted).shape) if wanted else []
        if [size for size in sizes if size != 1] != [size for size in x.shape if size != 1]:
            raise UnsupportedError(f"a moment of shape {tuple(x.shape)} as one of shape {tuple(sizes)}")

        def change(form: Form) -> Form:
            long = iter([axis for axis, size in zip(form.axes, x.shape, strict=True) if size != 1])
            return Form(tuple(None if size == 1 else next(long) for size in sizes), form.terms)

        return self._shaped(x, change)

    _view = _reshape

    def _to(self, x: Tensor, *like: Any, **options: Any) -> Form | Exp:
        return self._shaped(x, lambda form: form)

    _double = _type = _type_as = _contiguous = _clone = _as_tensor = _to

    def _getitem(self, x: Tensor, index: Any) -> Form | Exp:
        if isinstance(index, Tensor) and index.dtype == torch.long and id(index) not in self._known:
            known = self._rows.setdefault(id(index), RowsOf(index.remainder(x.shape[0])))
            self._kept.append(index)
            return self._shaped(x, lambda form: rows_of(self.axes, form, known))
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

    def _where(self, condition: Tensor, x: Any, y: Any) -> Form:
        if id(condition) in self._known:
            raise UnsupportedError("where of what is to be inferred")
        if bool(condition.all()):
            return self.form(x)
        return added(self.axes, [self._chosen(condition, x), self._chosen(~condition, y)])

    def _chosen(self, condition: Tensor, x: Any) -> Form:
        """x where the condition holds, else 0."""
        if not isinstance(x, Tensor) or id(x) not in self._known:
            value = torch.where(condition, x, 0.0)
            return self.form(value) if bool((value != 0).any()) else Form.number(0.0)
        return self._mul(condition, x)

    def _masked_fill(self, x: Tensor, mask: Tensor, value: Any) -> Form:
        return self._where(mask, value, x)

    def _log(self, x: Tensor) -> Form:
        known = self._known.get(id(x))
        if not isinstance(known, Exp):
            raise UnsupportedError("the logarithm of a moment")
        return known.log

    def _xlogy(self, x: Any, y: Tensor) -> Form:
        known = self._known.get(id(y))
        if isinstance(known, Form):
            raise UnsupportedError("the logarithm of a moment")
        if isinstance(known, Exp):
            log = known.log
            first = self.form(x)
            depth = max(len(first.axes), len(log.axes))
            names = [range(depth - len(form.axes), depth) for form in (first, log)]
            return product(self.axes, [first, log], names, range(depth))
        value = y.log().clamp(min=NEVER)
        if known is not None:
            self._step(value, Step(lambda p: p.log().clamp(min=NEVER), (y,), {}, None))
        return self._mul(x, value)

    def _binary_cross_entropy_with_logits(
        self, x: Tensor, target: Tensor, weight: Any = None, *others: Any, reduction: str = "mean", **options: Any
    ) -> Form:
        """softplus(x) - target x, which is linear in the target."""
        known = self._known.get(id(x))
        weighted = weight is not None or options.get("pos_weight") is not None or bool(others)
        if isinstance(known, Form | Exp) or reduction != "none" or weighted:
            raise UnsupportedError("a cross-entropy that is not linear in the moments")
        soft = softplus(x)
        if known is not None:
            self._step(soft, Step(softplus, (x,), {}, None))
        return added(self.axes, [self.form(soft), self._mul(target, x).scaled(-1)])


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


def _references(tree: Any) -> set[Hashable]:
    if isinstance(tree, Ref):
        return {tree.name}
    if isinstance(tree, dict):
        return set().union(*map(_references, tree.values()))
    return set().union(*map(_references, tree)) if isinstance(tree, list | tuple) else set()


def _resolved(tree: Any, tensors: Mapping[Hashable, Tensor]) -> Any:
    """Arguments with tensors in place of references."""
    if isinstance(tree, Ref):
        return tensors[tree.name]
    if isinstance(tree, dict):
        return {key: _resolved(value, tensors) for key, value in tree.items()}
    return type(tree)(_resolved(value, tensors) for value in tree) if type(tree) in (list, tuple) else tree
