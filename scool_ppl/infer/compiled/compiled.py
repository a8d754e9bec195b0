"""Compiled programs: a log joint that is linear in its moments, recorded once and from there on swept without Pyro."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from scool_ppl.infer.compiled.contractions import Contraction, Contractions, Rows, contraction, placed, read
from scool_ppl.infer.compiled.forms import Axis, Factor, Term, UnsupportedError, merged
from scool_ppl.infer.compiled.recorder import Recorder
from scool_ppl.infer.expectation import Expectation
from scool_ppl.infer.moments import AnyProgram, log_joint, values_at
from scool_ppl.infer.program import Program

_SMALL = 2**10
"""Numbers in a site's moments below which its derivative is computed for all clients at once."""


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
        values = {name: value.clone() for name, value in values_at(kinds, moments).items()}
        recorder = Recorder({name: (m, kinds[name] == "dirichlet") for name, m in values.items()}, self._parameters())
        with torch.no_grad(), recorder:
            total, _ = log_joint(joint, values, *args)
        record = recorder.record
        self.terms, self.steps = record.form(total).terms, record.steps
        self._learned = {*self._parameters(), *self.steps}
        terms, self._sums = merged(self.terms, self._learned)
        self._taking_part = {factor.source.name for term in terms for factor in term.factors}
        self._most = {name: max((self._times(name, term.factors) for term in terms), default=0) for name in moments}
        """How often a term has each site, at most."""
        self._products = Contractions(record.axes, dict(record.constants), frozenset(record.constants))
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
        taking = {name: step.taking for name, step in self.steps.items()}
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
                    tensors[name] = self._done[name] = self.steps[name].repeated(tensors).detach()
                    changed.add(name)
            for name in changed & self._taking_part:
                self._products.set(name, tensors[name].detach().double().squeeze())
            for name, parts in self._sums.items():
                if any(source.name in changed for _, source, _ in parts):
                    total: Tensor | float = 0.0
                    for c, source, order in parts:
                        total = total + c * tensors[source.name].double().squeeze().permute(order)
                    self._products.set(name, torch.as_tensor(total))

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
            tensors[name] = self.steps[name].repeated(tensors)
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
