"""Sums of products of tensors with named axes: how they are written down, multiplied out, differentiated and evaluated.

The log joint of a program that is linear in its moments is such a sum. Written down once, its value and its derivative in
any one tensor are contractions, of which only those are computed anew that something has changed for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

_FEW = 2**14  # numbers in a matrix below which its layout matters to no product

MOST_TERMS = 64
"""A sum of more products than this is refused: multiplied out it would cost more than it saves."""

Axis = int


class UnsupportedError(Exception):
    """What cannot be written as a sum of products; the text says what it is."""


class Axes:
    """Names for axes, and how long each is."""

    def __init__(self) -> None:
        self.sizes: dict[Axis, int] = {}

    def new(self, size: int) -> Axis:
        self.sizes[len(self.sizes)] = size
        return len(self.sizes) - 1


class Source(NamedTuple):
    """Where a factor's numbers come from: the tensor of this name, without its dimensions of size 1.

    rows: axis 0 of that tensor read at these rows, in place of axis 0 itself; None for all of it. The index is compared
    by identity, through `RowsOf`.
    """

    name: Hashable
    rows: RowsOf | None = None


@dataclass(frozen=True, eq=False)
class RowsOf:
    """Rows (...,) of a tensor that are read, e.g. those of each receiver's candidates."""

    index: Tensor


class Factor(NamedTuple):
    """One tensor of a product, and the name of each of its axes."""

    source: Source
    axes: tuple[Axis, ...]


class Term(NamedTuple):
    """coefficient * product of factors, summed over all axes that the form around it does not have."""

    coefficient: float
    factors: tuple[Factor, ...]


@dataclass(frozen=True)
class Form:
    """A tensor as a sum of terms; `axes` names each of its dimensions, None where the size is 1."""

    axes: tuple[Axis | None, ...]
    terms: tuple[Term, ...]

    @staticmethod
    def of(axes: Axes, name: Hashable, shape: Sequence[int]) -> Form:
        """The tensor of this name and shape itself."""
        named = tuple(None if size == 1 else axes.new(size) for size in shape)
        return Form(named, (Term(1.0, (Factor(Source(name), tuple(a for a in named if a is not None)),)),))

    @staticmethod
    def number(value: float) -> Form:
        return Form((), (Term(float(value), ()),))

    def scaled(self, coefficient: float) -> Form:
        return replace(self, terms=tuple(Term(coefficient * c, factors) for c, factors in self.terms))


def product(axes: Axes, operands: Sequence[Form], names: Sequence[Sequence[Hashable]], out: Sequence[Hashable]) -> Form:
    """The product of forms whose dimensions have these names, summed over all names that are not in `out`.

    A dimension of size 1 takes part as one that is repeated, as in einsum's broadcasting.
    """
    known: dict[Hashable, Axis] = {}
    renamed = []
    for form, dims in zip(operands, names, strict=True):
        mapping: dict[Axis, Axis] = {}
        for axis, name in zip(form.axes, dims, strict=True):
            if axis is None:
                continue
            if name not in known:
                known[name] = axes.new(axes.sizes[axis])
            if axis in mapping or known[name] in mapping.values():
                raise UnsupportedError("a diagonal")
            mapping[axis] = known[name]
        renamed.append([_renamed(axes, term, dict(mapping)) for term in form.terms])
    if math.prod(map(len, renamed)) > MOST_TERMS:
        raise UnsupportedError(f"a product of more than {MOST_TERMS} terms")
    summed = [axis for name, axis in known.items() if name not in out]
    terms = []
    for parts in itertools.product(*renamed):
        factors = tuple(f for part in parts for f in part.factors)
        there = {axis for f in factors for axis in f.axes}
        repeated = math.prod(axes.sizes[axis] for axis in summed if axis not in there)
        terms.append(Term(math.prod(part.coefficient for part in parts) * repeated, factors))
    return Form(tuple(known.get(name) for name in out), tuple(terms))


def _renamed(axes: Axes, term: Term, mapping: dict[Axis, Axis]) -> Term:
    """The term with its outer axes renamed, and new names for those that it is summed over."""
    factors = []
    for source, names in term.factors:
        for axis in names:
            if axis not in mapping:
                mapping[axis] = axes.new(axes.sizes[axis])
        factors.append(Factor(source, tuple(mapping[axis] for axis in names)))
    return Term(term.coefficient, tuple(factors))


def added(axes: Axes, forms: Sequence[Form]) -> Form:
    """The sum of forms, broadcast against each other."""
    depth = max(len(form.axes) for form in forms)
    dims = [list(range(depth - len(form.axes), depth)) for form in forms]
    sizes: dict[int, int] = {}
    for form, places in zip(forms, dims, strict=True):
        for axis, place in zip(form.axes, places, strict=True):
            if axis is not None:
                sizes[place] = axes.sizes[axis]
    outer = {place: axes.new(size) for place, size in sizes.items()}
    terms = []
    for form, places in zip(forms, dims, strict=True):
        mapping = {a: outer[place] for a, place in zip(form.axes, places, strict=True) if a is not None}
        terms += [_renamed(axes, term, dict(mapping)) for term in form.terms]
    if len(terms) > MOST_TERMS:
        raise UnsupportedError(f"a sum of more than {MOST_TERMS} terms")
    return Form(tuple(outer.get(place) for place in range(depth)), tuple(terms))


def rows_of(axes: Axes, form: Form, index: RowsOf) -> Form:
    """The form's first dimension read at rows `index` (...,), whose dimensions take its place."""
    first = form.axes[0]
    named = tuple(None if size == 1 else axes.new(size) for size in index.index.shape)
    places = tuple(axis for axis in named if axis is not None)
    terms = []
    for term in form.terms:
        factors = []
        for source, dims in term.factors:
            if first is None or first not in dims:
                factors.append(Factor(source, dims))
            elif dims[0] == first and dims.count(first) == 1 and source.rows is None:
                factors.append(Factor(Source(source.name, index), places + dims[1:]))
            else:
                raise UnsupportedError("rows of what is no tensor's first axis")
        terms.append(Term(term.coefficient, tuple(factors)))
    return Form(named + form.axes[1:], tuple(terms))


class Contraction:
    """One tensor, a tensor summed over some of its axes, or the product of two, summed over the axes that `axes` lacks.

    Its value is kept until something that it needs changes.
    """

    __slots__ = ("axes", "combine", "factor", "needs", "parts", "value")

    def __init__(
        self,
        axes: tuple[Axis, ...],
        needs: frozenset[Hashable],
        factor: Factor | None = None,
        parts: tuple[Contraction, ...] = (),
        combine: Callable[..., Tensor] | None = None,
    ) -> None:
        self.axes, self.needs, self.factor, self.parts, self.combine = axes, needs, factor, parts, combine
        self.value: Tensor | None = None


class Rows(NamedTuple):
    """Some rows along certain axes, for what a tensor of this name takes part in."""

    axes: frozenset[Axis]
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, on purpose
    moving: Hashable


@dataclass
class Contractions:
    """Contractions of tensors by name, each found once and computed where what it needs has changed.

    tensors: by name, as they are now, each without its dimensions of size 1.
    """

    axes: Axes
    tensors: dict[Hashable, Tensor] = field(default_factory=dict)
    fixed: frozenset[Hashable] = frozenset()
    """Names of tensors that never change."""
    _found: dict[object, Contraction] = field(default_factory=dict)
    _needing: dict[Hashable, list[Contraction]] = field(default_factory=dict)
    _selected_by: Tensor | None = None
    _selected: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def set(self, name: Hashable, value: Tensor) -> None:
        """Another tensor under this name; what was computed from the old one is forgotten."""
        self.tensors[name] = value
        for node in self._needing.get(name, ()):
            node.value = None

    def shift(self, name: Hashable, value: Tensor, rows: Tensor, moved: Tensor) -> None:
        """Another tensor under this name, which differs by `moved` in these rows.

        Where its rows are summed over with rows of what it is multiplied with, this is added to what is known.
        """
        self.tensors[name] = value
        for node in self._needing.get(name, ()):
            other = self._beside_it(node, name)
            if node.value is None or other is None or node.combine is None:
                node.value = None
            else:
                parts = [moved if part is not other else self.selected(other, rows) for part in node.parts]
                node.value = node.value + node.combine(*parts)

    def _beside_it(self, node: Contraction, name: Hashable) -> Contraction | None:
        """What is multiplied with the tensor of this name and summed over the rows of both; None if there is no such."""
        if len(node.parts) != 2:
            return None
        its, other = sorted(node.parts, key=lambda part: name not in part.needs)
        if its.factor is None or its.factor.source != Source(name) or name in other.needs or not its.axes:
            return None
        return other if other.axes[:1] == its.axes[:1] and its.axes[0] not in node.axes else None

    def plan(self, factors: Sequence[Factor], out: Sequence[Axis]) -> Contraction:
        """How to contract factors to those of the axes `out` that they have: cheap products first."""
        nodes = [self._input(factor) for factor in factors]
        while True:
            nodes = [self._reduced(node, nodes, out) for node in nodes]
            if len(nodes) == 1:
                return nodes[0]
            pairs = itertools.combinations(range(len(nodes)), 2)
            first, second = min(pairs, key=lambda pair: self._cost(nodes, pair, out))
            others = [node for place, node in enumerate(nodes) if place not in (first, second)]
            nodes = [*others, self._product(nodes[first], nodes[second], others, out)]

    def _kept(
        self, left: Contraction, right: Contraction, others: Sequence[Contraction], out: Sequence[Axis]
    ) -> tuple[Axis, ...]:
        """The axes of a product that somebody still needs; of the last one in the order that is wanted."""
        needed = {*out}.union(*(node.axes for node in others))
        kept = [axis for axis in dict.fromkeys(left.axes + right.axes) if axis in needed]
        return tuple(kept if others else sorted(kept, key=out.index))

    def _cost(self, nodes: Sequence[Contraction], pair: tuple[int, int], out: Sequence[Axis]) -> tuple[bool, int, int]:
        """By how many numbers the product is larger than its parts, then how many multiplications it takes; but what never
        changes is first of all multiplied with what never changes, where that is not larger than either.
        """
        left, right = nodes[pair[0]], nodes[pair[1]]
        others = [node for place, node in enumerate(nodes) if place not in pair]
        size, parts = self._size(self._kept(left, right, others, out)), (self._size(left.axes), self._size(right.axes))
        once = not left.needs and not right.needs and size <= max(parts)
        return not once, size - sum(parts), self._size({*left.axes, *right.axes})

    def shape(self, axes: Iterable[Axis]) -> list[int]:
        return [self.axes.sizes[axis] for axis in axes]

    def _size(self, axes: Iterable[Axis]) -> int:
        return math.prod(self.shape(axes))

    def _input(self, factor: Factor) -> Contraction:
        return self._node((factor,), factor.axes, frozenset({factor.source.name}) - self.fixed, factor=factor)

    def _reduced(self, node: Contraction, nodes: Sequence[Contraction], out: Sequence[Axis]) -> Contraction:
        """The node summed over axes that nobody else has and nobody wants."""
        needed = {*out}.union(*(other.axes for other in nodes if other is not node))
        if sum(other is node for other in nodes) > 1 or needed.issuperset(node.axes):
            return node
        kept = tuple(axis for axis in node.axes if axis in needed)
        gone = [place for place, axis in enumerate(node.axes) if axis not in needed]
        return self._node((id(node), kept), kept, node.needs, parts=(node,), combine=lambda x: x.sum(gone))

    def _product(
        self, left: Contraction, right: Contraction, others: Sequence[Contraction], out: Sequence[Axis]
    ) -> Contraction:
        kept = self._kept(left, right, others, out)
        small = max(self._size(left.axes), self._size(right.axes)) < _FEW
        combine = contraction(left.axes, right.axes, kept, small)
        needs = left.needs | right.needs
        return self._node((id(left), id(right), kept), kept, needs, parts=(left, right), combine=combine)

    def beside(self, nodes: Sequence[tuple[float, Contraction, tuple[Axis, ...]]], dim: int) -> Contraction:
        """Matrices one after the other along a dimension: the coefficient of each, and the order of its axes."""

        def combine(*values: Tensor) -> Tensor:
            ordered = [placed(value, node.axes, axes) for value, (_, node, axes) in zip(values, nodes, strict=True)]
            return torch.cat([x if c == 1 else c * x for x, (c, _, _) in zip(ordered, nodes, strict=True)], dim)

        parts = tuple(node for _, node, _ in nodes)
        needs = frozenset[Hashable]().union(*(part.needs for part in parts))
        return self._node(object(), (), needs, parts=parts, combine=combine)

    def _node(self, key: object, axes: tuple[Axis, ...], needs: frozenset[Hashable], **parts: Any) -> Contraction:
        if key not in self._found:
            node = self._found[key] = Contraction(axes, needs, **parts)
            for name in needs:
                self._needing.setdefault(name, []).append(node)
        return self._found[key]

    def value(self, node: Contraction) -> Tensor:
        """The node's tensor, as the tensors are now."""
        value = node.value
        if value is None:
            if node.combine is None:
                assert node.factor is not None
                value = read(self.tensors[node.factor.source.name], node.factor.source)
            else:
                parts = node.parts
                if len(parts) == 2:  # most are, and have their parts' values: a call less for each
                    left, right = parts[0].value, parts[1].value
                    left = self.value(parts[0]) if left is None else left
                    value = node.combine(left, self.value(parts[1]) if right is None else right)
                else:
                    value = node.combine(*[self.value(part) for part in parts])
            node.value = value
        return value

    def rows(self, node: Contraction, rows: Rows) -> Tensor:
        """The node's tensor at some rows; of what `moving` has no part in, all rows are computed and kept.

        Everything is computed where columns would have to be taken out of a matrix: that takes longer than to use them.
        """
        columns = any(rows.axes.intersection(part.axes[1:]) and rows.moving not in part.needs for part in node.parts)
        if rows.moving in node.needs and node.combine is not None and not columns:
            return node.combine(*[self.rows(part, rows) for part in node.parts])
        value = self.value(node)
        for place, axis in enumerate(node.axes):
            if axis in rows.axes:
                first = place == 0 and rows.moving not in node.needs
                value = self.selected(node, rows.index) if first else value.index_select(place, rows.index)
        return value

    def selected(self, node: Contraction, rows: Tensor) -> Tensor:
        """These rows of the node's tensor; several ask for the same."""
        value = self.value(node)
        if self._selected_by is not rows:
            self._selected_by, self._selected = rows, {}
        known = self._selected.get(id(node))
        if known is None or known[0] is not value:
            known = self._selected[id(node)] = value, value.index_select(0, rows)
        return known[1]

    def between(self, node: Contraction, rows: Rows, moved: Tensor) -> Tensor:
        """The node's tensor at some rows, with `moved` for what is moving at these rows."""
        if rows.moving in node.needs:
            if node.combine is None:  # moved has these rows; where it meets itself transposed, these columns, too
                for place, axis in enumerate(node.axes[1:], 1):
                    moved = moved.index_select(place, rows.index) if axis in rows.axes else moved
                return moved
            return node.combine(*[self.between(part, rows, moved) for part in node.parts])
        return self.rows(node, rows)


def read(tensor: Tensor, source: Source) -> Tensor:
    """The numbers of a source."""
    return tensor if source.rows is None else tensor[source.rows.index].squeeze()


def contraction(
    lefts: tuple[Axis, ...], rights: tuple[Axis, ...], out: tuple[Axis, ...], small: bool = False
) -> Callable[..., Tensor]:
    """What multiplies two tensors with named axes and sums over those that are not in `out`; `small` says that both are."""
    if lefts == rights == out:
        return torch.mul
    shared = [axis for axis in lefts if axis in rights]
    if len(lefts) == len(rights) == len(out) == 2 and len(shared) == 1 and shared[0] not in out:
        swapped, ahead, behind = out[0] in rights, lefts[0] == shared[0], rights[1] == shared[0]
        return _matrices(swapped, ahead, behind, torch.mm if small else _product_of)
    if {*out} == {*lefts, *rights}:
        if lefts == out:
            return lambda left, right: left * placed(right, rights, out)
        return lambda left, right: placed(left, lefts, out) * placed(right, rights, out)
    letters = {axis: chr(ord("a") + place) for place, axis in enumerate(dict.fromkeys(lefts + rights))}
    names = ["".join(letters[axis] for axis in axes) for axes in (lefts, rights, out)]
    equation = f"{names[0]},{names[1]}->{names[2]}"
    return lambda left, right: torch.einsum(equation, left, right)


def _matrices(
    swapped: bool, ahead: bool, behind: bool, product: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor, Tensor], Tensor]:
    """The product of two matrices: `ahead` says that the left's first axis is summed over, `behind` the right's second;
    `swapped` that the result is transposed.
    """
    if swapped:
        flipped = _matrices(False, not behind, not ahead, product)
        return lambda left, right: flipped(right, left)
    if ahead:
        return lambda left, right: product(left.mT, right.mT if behind else right)
    return (lambda left, right: product(left, right.mT)) if behind else product


def _product_of(left: Tensor, right: Tensor) -> Tensor:
    """left @ right; of a large transposed matrix and a thin one the transposed product, which reads it row by row."""
    if left.stride(0) == 1 and left.shape[0] > 4 * right.shape[1]:
        return right.mT.mm(left.mT).mT
    return left.mm(right)


def placed(tensor: Tensor, axes: tuple[Axis, ...], out: Sequence[Axis]) -> Tensor:
    """The tensor with its axes in the order of `out`, those that it lacks of size 1."""
    if axes == tuple(out):
        return tensor
    order = sorted(range(len(axes)), key=lambda place: out.index(axes[place]))
    if order != list(range(len(axes))):
        tensor = tensor.permute(order)
    for place, axis in enumerate(out):
        if axis not in axes:
            tensor = tensor.unsqueeze(place)
    return tensor


Parts = tuple[tuple[float, Source, tuple[int, ...]], ...]
"""A tensor as a sum: coefficient, where the numbers come from, and the order of its axes."""


def merged(terms: Iterable[Term], adjustable: Set[Hashable]) -> tuple[list[Term], dict[Hashable, Parts]]:
    """Terms that differ in nothing but one adjustable tensor are one term, with the sum of these tensors in its place.

    adjustable: names of tensors that may be summed. Returns the terms and what their new tensors are sums of.
    """
    together: dict[object, list[tuple[Term, Factor, dict[Axis, int]]]] = {}
    out: list[Term] = []
    for term in terms:
        free = [factor for factor in term.factors if factor.source.name in adjustable and factor.source.rows is None]
        if len(free) != 1:
            out.append(term)
            continue
        others = [factor for factor in term.factors if factor is not free[0]]
        numbers: dict[Axis, int] = {}
        for factor in others:
            for axis in factor.axes:
                numbers.setdefault(axis, len(numbers))
        if any(axis not in numbers for axis in free[0].axes):
            out.append(term)
            continue
        shape = tuple((factor.source, tuple(numbers[axis] for axis in factor.axes)) for factor in others)
        key = (shape, tuple(sorted(numbers[axis] for axis in free[0].axes)))
        together.setdefault(key, []).append((term, free[0], numbers))
    sums: dict[Hashable, Parts] = {}
    for alike in together.values():
        term, free_factor, numbers = alike[0]
        if len(alike) == 1:
            out.append(term)
            continue
        places = [numbers[axis] for axis in free_factor.axes]
        parts = []
        for other, factor, named in alike:
            theirs = [named[axis] for axis in factor.axes]
            parts.append((other.coefficient, factor.source, tuple(theirs.index(place) for place in places)))
        name = ("sum", len(sums))
        sums[name] = tuple(parts)
        others = [factor for factor in term.factors if factor is not free_factor]
        out.append(Term(1.0, (*others, Factor(Source(name), free_factor.axes))))
    return out, sums
