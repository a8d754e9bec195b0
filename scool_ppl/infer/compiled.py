"""Compiled programs: a log joint that is linear in its moments, recorded once and from there on swept without Pyro.

The program is run once, and what it does with the moments of its sites is written down as a sum of products. What it does
with its parameters alone is kept as it is, to be done again when they change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from scool_ppl.infer.distributions import NEVER, softplus
from scool_ppl.infer.expectation import Expectation
from scool_ppl.infer.moments import AnyProgram, log_joint
from scool_ppl.infer.multilinear import (
    Axes,
    Axis,
    Contraction,
    Contractions,
    Factor,
    Form,
    Rows,
    RowsOf,
    Term,
    UnsupportedError,
    added,
    contraction,
    merged,
    placed,
    product,
    read,
    rows_of,
)
from scool_ppl.infer.program import Program

_SMALL = 2**10
"""Numbers in a site's moments below which its derivative is computed for all clients at once."""


class Step(NamedTuple):
    """A call that involves parameters but no moments."""

    func: Callable[..., Any]
    args: Any
    kwargs: dict[str, Any]
    place: int | None
    """Which of several tensors that it returned; None where it returned one."""


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


class Derivative:
    """That of a sum of products by one of its tensors: a sum of contractions.

    Those of them that are products of two matrices, A X + B Y + ..., are one, of A and B beside each other and X below Y.
    """

    def __init__(
        self, products: Contractions, site: str, terms: Iterable[tuple[float, Contraction | None, Factor]]
    ) -> None:
        self.products, self.site, self.others = products, site, list[tuple[float, Contraction | None, Factor]]()
        self.lefts: list[tuple[Contraction, bool]] = []
        """Each, and whether it is the other way round."""
        rights = []
        for coefficient, node, factor in terms:
            sides = self._sides(node, factor)
            if sides is None:
                self.others.append((coefficient, node, factor))
            else:
                left, right, shared = sides
                self.lefts.append((left, left.axes[0] == shared))
                rights.append((coefficient, right, (shared, factor.axes[1])))
        self.right = products.beside(rights, 0) if rights else None
        self.by_rows = all(factor.source.rows is None for _, _, factor in self.others)

    def _sides(self, node: Contraction | None, factor: Factor) -> tuple[Contraction, Contraction, Axis] | None:
        """The two matrices and the axis that they share; None of what is no such product, or goes by a matrix's columns."""
        if node is None or factor.source.rows is not None or len(factor.axes) != 2 or len(node.parts) != 2:
            return None
        left, right = sorted(node.parts, key=lambda part: factor.axes[0] not in part.axes)
        shared = {*left.axes} & {*right.axes}
        columns = left.axes[0] != factor.axes[0] and self.site not in left.needs
        if columns or len(shared) != 1 or {*left.axes} ^ {*right.axes} != {*factor.axes}:
            return None
        return (left, right, shared.pop()) if factor.axes[1] in right.axes else None

    def all_rows(self, like: Tensor) -> Tensor:
        """By all of the tensor, which is shaped as `like`."""
        total, value = None, self.products.value
        if self.right is not None:
            lefts = [value(left).mT if turned else value(left) for left, turned in self.lefts]
            total = torch.mm(torch.cat(lefts, 1), value(self.right))
        for coefficient, node, (source, axes) in self.others:
            each = like.new_ones(()) if node is None else value(node)
            if node is not None and node.axes != axes:
                each = placed(each, node.axes, axes)
            if total is None and source.rows is None and each.shape == like.shape:
                total = each if coefficient == 1 else coefficient * each
                continue
            if total is None:
                total = torch.zeros_like(like)
            if source.rows is None:
                total = torch.add(total, each, alpha=coefficient)
            else:
                index = source.rows.index
                flat = each.expand(*self.products.shape(axes)).reshape(index.numel(), *like.shape[1:])
                total = total.index_add(0, index.flatten(), flat, alpha=coefficient)
        return torch.zeros_like(like) if total is None else total

    def some_rows(self, like: Tensor, rows: Tensor) -> Tensor:
        """By these rows of the tensor."""
        if self.right is None:
            total = like.new_zeros(len(rows), *like.shape[1:])
        else:
            each = [self._rows(left, left.axes[turned], rows) for left, turned in self.lefts]
            lefts = [some.mT if turned else some for some, (_, turned) in zip(each, self.lefts, strict=True)]
            total = torch.mm(torch.cat(lefts, 1), self.products.value(self.right))
        for coefficient, node, (_, axes) in self.others:
            other = total.new_ones(()) if node is None else self._rows(node, axes[0], rows)
            if node is not None and node.axes != axes:
                other = placed(other, node.axes, axes)
            total.add_(other, alpha=coefficient)
        return total

    def _rows(self, node: Contraction, axis: Axis, rows: Tensor) -> Tensor:
        return self.products.rows(node, Rows(frozenset({axis}), rows, self.site))


class Compiled:
    """The log joint of a program as a sum of products, at moments that are changed one site at a time.

    `update` sets a site's moments E[Y], E[z] or E[log pi], `refresh` reads parameters anew; then `expected` is
    E_q[log p] and `derivative` that by a site's moments. Raises UnsupportedError where a program cannot be written down so.
    """

    def __init__(
        self,
        joint: AnyProgram,
        program: Program,
        kinds: Mapping[str, str],
        moments: Mapping[str, Tensor],
        args: Sequence[Any],
    ) -> None:
        self.program, self.moments, self._leaves = program, dict(moments), dict(program.named_parameters())
        values = {name: m.exp() if kinds[name] == "dirichlet" else m.clone() for name, m in moments.items()}
        recorder = Recorder({name: (m, kinds[name] == "dirichlet") for name, m in values.items()}, self._parameters())
        with torch.no_grad(), recorder:
            total, _ = log_joint(joint, values, *args)
        self.terms, self.steps = recorder.form(total).terms, recorder.steps
        self._learned = {*self._parameters(), *self.steps}
        terms, self._sums = merged(self.terms, self._learned)
        self._taking_part = {factor.source.name for term in terms for factor in term.factors}
        self._most = {name: max((self._times(name, term.factors) for term in terms), default=0) for name in moments}
        """How often a term has each site, at most."""
        self._products = Contractions(recorder.axes, dict(recorder.constants), frozenset(recorder.constants))
        self._once = self._largest()
        self._total = [
            (c, self._products.plan(factors, ()) if factors else None)
            for c, factors in terms
            if c and self._times(self._once, factors) == 0
        ]
        self._derivatives = {name: Derivative(self._products, name, self._factors(name, terms)) for name in moments}
        self._large = {
            name: moment.numel() >= _SMALL and len(moment) > 1 and self._derivatives[name].by_rows
            for name, moment in moments.items()
        }
        """Is it worth the while to compute some rows only?"""
        self._curvature = {name: list(self._twice(name, terms)) for name in moments if self._large[name]}
        self._needed = self._needed_steps()
        self._plain = {
            name for name, moment in moments.items() if moment.dtype == torch.float64 and 1 not in moment.shape
        }
        self._done: dict[Hashable, Tensor] = {}
        self._whole: dict[str, Tensor] = {}
        self._part: tuple[str, Tensor, Tensor] | None = None
        for name, moment in moments.items():
            self.update(name, moment)
        self.refresh(self._parameters())
        leaves = [
            value.dtype for value in (*values.values(), *self._parameters().values()) if value.is_floating_point()
        ]
        self.precision = (
            max((torch.finfo(dtype).eps for dtype in leaves), default=torch.finfo(torch.float64).eps) ** 0.5
        )
        """How near numbers must be to be the same: the square root of that of the coarsest tensor."""
        check_same(self.expected(), float(total), self.precision)

    @staticmethod
    def _times(site: str | None, factors: Iterable[Factor]) -> int:
        """How often the site is a factor."""
        return sum(factor.source.name == site for factor in factors)

    def _largest(self) -> str | None:
        """The site with the most numbers among those that no term has twice; None if there is none."""
        once = [name for name, times in self._most.items() if times <= 1]
        return max(once, key=lambda name: self.moments[name].numel(), default=None)

    def _parameters(self) -> dict[str, Tensor]:
        """Parameters, which are changed in place, and buffers, which are replaced."""
        return {**self._leaves, **dict(self.program.named_buffers())}

    def _factors(self, site: str, terms: Iterable[Term]) -> Iterator[tuple[float, Contraction | None, Factor]]:
        """For each factor that is the site: with what it is multiplied, coefficient and contraction; and the factor."""
        for coefficient, factors in terms:
            for place, factor in enumerate(factors):
                if factor.source.name == site:
                    others = factors[:place] + factors[place + 1 :]
                    yield coefficient, self._products.plan(others, factor.axes) if others else None, factor

    def _twice(self, site: str, terms: Iterable[Term]) -> Iterator[tuple[float, Contraction, frozenset[Axis]]]:
        """Each term that has the site twice: coefficient, contraction, and the axes of the site's rows."""
        for coefficient, factors in terms:
            ours = [factor for factor in factors if factor.source.name == site]
            if len(ours) == 2:
                first = frozenset(axis for factor in ours for axis in factor.axes[:1])
                yield coefficient, self._products.plan(factors, ()), first

    @cached_property
    def _rest(self) -> list[tuple[float, Contraction | None, list[Factor]]]:
        return [self._linear(term) for term in self.terms]

    def _linear(self, term: Term) -> tuple[float, Contraction | None, list[Factor]]:
        """The term as what parameters are multiplied with, and these."""
        ours = [factor for factor in term.factors if factor.source.name in self._learned]
        others = [factor for factor in term.factors if factor not in ours]
        out = list(dict.fromkeys(axis for factor in ours for axis in factor.axes))
        return term.coefficient, self._products.plan(others, out) if others else None, ours

    def _needed_steps(self) -> dict[Hashable, frozenset[Hashable]]:
        """The steps that any term comes from, in order, each with the parameters that take part in it."""
        taking = {name: _references((step.args, step.kwargs)) for name, step in self.steps.items()}
        wanted = {factor.source.name for term in self.terms for factor in term.factors}
        for name in reversed(taking):
            if name in wanted:
                wanted |= taking[name]
        found: dict[Hashable, frozenset[Hashable]] = {}
        for name, parts in taking.items():
            if name in wanted:
                found[name] = frozenset().union(*(found.get(part, {part}) for part in parts))
        return found

    def update(self, site: str, moment: Tensor) -> None:
        """Another moment of a site."""
        self.moments[site] = moment
        self._forget()
        self._products.set(site, moment if site in self._plain else moment.double().squeeze())

    def _forget(self) -> None:
        self._whole.clear()
        self._part = None

    def refresh(self, names: Iterable[str]) -> None:
        """The parameters of these names have changed."""
        self._forget()
        parameters = self._parameters()
        known = {known for name in names for known in (name, f"{name}_unconstrained") if known in parameters}
        changed = set[Hashable](known)
        with torch.no_grad():
            tensors = dict(self._done)
            tensors.update(parameters.items())
            for name, needed in self._needed.items():
                if not needed.isdisjoint(changed):
                    tensors[name] = self._done[name] = self._repeated(self.steps[name], tensors).detach()
                    changed.add(name)
            for name in changed & self._taking_part:
                self._products.set(name, tensors[name].detach().double().squeeze())
            for name, parts in self._sums.items():
                if any(source.name in changed for _, source, _ in parts):
                    total: Tensor | float = 0.0
                    for c, source, order in parts:
                        total = total + c * tensors[source.name].double().squeeze().permute(order)
                    self._products.set(name, torch.as_tensor(total))

    @staticmethod
    def _repeated(step: Step, tensors: Mapping[Hashable, Tensor]) -> Tensor:
        out = step.func(*_resolved(step.args, tensors), **_resolved(step.kwargs, tensors))
        return out if step.place is None else out[step.place]

    def expected(self) -> float:
        """E_q[log p]: all terms with a site that none has twice come to <m, dE / dm>, which its next move needs anyway."""
        total = sum(c if node is None else c * float(self._products.value(node)) for c, node in self._total)
        if self._once is None:
            return total
        moment, slope = self.moments[self._once].double(), self.derivative(self._once).double()
        return total + float(moment.flatten().dot(slope.flatten()))

    def derivative(self, site: str, rows: Tensor | None = None) -> Tensor:
        """d E_q[log p] / d moments of a site, all of it or some rows."""
        if rows is None or not self._large[site]:
            whole = self._whole.get(site)
            if whole is None:
                found = self._derivatives[site].all_rows(self._products.tensors[site])
                whole = self._whole[site] = self._shaped(site, found)
            return whole if rows is None else whole.index_select(0, rows)
        if self._part is None or self._part[0] != site or self._part[1] is not rows:
            found = self._derivatives[site].some_rows(self._products.tensors[site], rows)
            self._part = site, rows, self._shaped(site, found)
        return self._part[2]

    def _shaped(self, site: str, found: Tensor) -> Tensor:
        """What was computed without dimensions of size 1, in float64, as the site has it."""
        moment = self.moments[site]
        if site in self._plain:
            return found
        return found.view(-1, *moment.shape[1:]).to(moment) if moment.dim() else found.view(()).to(moment)

    def repeats(self, site: str) -> bool:
        """Has any term the site twice?"""
        return self._most[site] > 1

    def rise(self, site: str, moment: Tensor, rows: Tensor) -> float:
        """Another moment of a site in these rows; by how much E_q[log p] rises.

        A term that has the site twice is a quadratic form f(m), and with g its derivative exactly
        f(m + d) - f(m) = <g, d> + f(d) = <(g + g') / 2, d>: a few rows are worth the former, all of them the latter.
        """
        before = self.moments[site]
        moved, after = moment - before.index_select(0, rows), before.index_copy(0, rows, moment)
        if self._most[site] > 2:
            old = self.expected()
            self.update(site, after)
            return self.expected() - old
        slope = self.derivative(site, rows)
        if self._large[site]:
            like = self._products.tensors[site]
            difference = moved.double().view(len(rows), *like.shape[1:])
            curved = self._curved(site, difference, rows)
            self.moments[site] = after
            self._forget()
            self._products.shift(site, after.double().view(like.shape), rows, difference)
            return float((slope * moved).sum()) + curved
        self.update(site, after)
        return float(((slope + self.derivative(site, rows)) * moved).sum()) / 2

    def _curved(self, site: str, moved: Tensor, rows: Tensor) -> float:
        """The terms that have the site twice, at what it moves by in these rows."""
        total = 0.0
        for coefficient, node, axes in self._curvature[site]:
            total += coefficient * float(self._products.between(node, Rows(axes, rows, site), moved))
        return total

    def loss(self) -> Tensor:
        """-E_q[log p], differentiable in the parameters."""
        tensors: dict[Hashable, Tensor] = {name: value for name, value in self._parameters().items()}  # noqa: C416
        for name in self._needed:
            tensors[name] = self._repeated(self.steps[name], tensors)
        total: Tensor | float = 0.0
        for coefficient, node, ours in self._rest:
            value = torch.ones((), dtype=torch.float64) if node is None else self._products.value(node)
            axes = () if node is None else node.axes
            for place, (source, theirs) in enumerate(ours):
                tensor = read(tensors[source.name].double().squeeze(), source)
                kept = {axis for factor in ours[place + 1 :] for axis in factor.axes}
                out = tuple(axis for axis in dict.fromkeys(axes + theirs) if axis in kept)
                value, axes = contraction(axes, theirs, out)(value, tensor), out
            total = total - coefficient * value
        return torch.as_tensor(total)


def check_same(found: Tensor | float, expected: Tensor | float, precision: float) -> None:
    """Raises UnsupportedError unless what was written down gives what the program gives."""
    found, expected = torch.as_tensor(found).double(), torch.as_tensor(expected).double()
    furthest = (found - expected).abs().max() if found.numel() else torch.zeros(())
    if not bool(furthest <= precision * (1 + expected.abs().max() if found.numel() else 1)):
        raise UnsupportedError("what Python does with its numbers, outside of torch or hidden from it")


def check_derivatives(
    found: Expectation, expected: Expectation, parameters: Iterable[Tensor], precision: float
) -> None:
    """Raises UnsupportedError unless two have the same derivatives by all moments and parameters."""
    for site in expected.moments:
        check_same(found.derivative(site), expected.derivative(site), precision)
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    if not learned:
        return
    with torch.enable_grad():
        losses = found.loss(), expected.loss()
        first, second = (
            torch.autograd.grad(loss, learned, allow_unused=True) if loss.requires_grad else (None,) * len(learned)
            for loss in losses
        )
    for parameter, one, other in zip(learned, first, second, strict=True):
        zero = torch.zeros_like(parameter)
        check_same(zero if one is None else one, zero if other is None else other, precision)


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
