"""Contractions of tensors with named axes: products planned once, of which only those are computed anew that something has
changed for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scool_ppl.infer.compiled.forms import Axes, Axis, Factor, Source

_FEW = 2**14  # numbers in a matrix below which its layout matters to no product


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
