"""Sums of products of tensors with named axes: how they are written down, multiplied out and merged.

The log joint of a program that is linear in its moments is such a sum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

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
