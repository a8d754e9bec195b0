"""Sums of products against einsum."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping

import pytest
import torch
from torch import Tensor

from scool_ppl.infer.compiled.forms import (
    MOST_TERMS,
    Axes,
    Factor,
    Form,
    Parts,
    RowsOf,
    Source,
    Term,
    UnsupportedError,
    added,
    merged,
    product,
    rows_of,
)
from tests.helpers.small import close, normal

Tensors = Mapping[Hashable, Tensor]


def summed_up(axes: Axes, form: Form, tensors: Tensors) -> Tensor:
    """A form written out: every term by one einsum, and dimensions that no factor has repeated."""
    shape = [1 if axis is None else axes.sizes[axis] for axis in form.axes]
    total = torch.zeros(shape, dtype=torch.float64)
    for coefficient, factors in form.terms:
        outer = [axis for axis in form.axes if axis is not None and any(axis in factor.axes for factor in factors)]
        operands: list[object] = [coefficient * torch.ones((), dtype=torch.float64), []]
        for source, names in factors:
            value = tensors[source.name]
            operands += [value if source.rows is None else value[source.rows.index].squeeze(), list(names)]
        each = torch.einsum(*operands, outer)
        total += each.reshape([n if axis in outer else 1 for axis, n in zip(form.axes, shape, strict=True)])
    return total


def forms_of(axes: Axes, *values: Tensor) -> tuple[list[Form], dict[Hashable, Tensor]]:
    """Tensors as forms, and these without dimensions of size 1 by name."""
    names = [f"tensor {place}" for place in range(len(values))]
    forms = [Form.of(axes, name, value.shape) for name, value in zip(names, values, strict=True)]
    return forms, {name: value.squeeze() for name, value in zip(names, values, strict=True)}


def test_a_tensor_is_one_term_whose_axes_are_those_longer_than_1() -> None:
    axes = Axes()
    form = Form.of(axes, "x", (2, 1, 3))
    first, nothing, last = form.axes
    assert nothing is None
    assert first is not None
    assert last is not None
    assert (axes.sizes[first], axes.sizes[last]) == (2, 3)
    assert form.terms == (Term(1.0, (Factor(Source("x"), (first, last)),)),)
    assert Form.of(axes, "x", (2,)).axes != Form.of(axes, "x", (2,)).axes, "two uses are two axes"


def test_a_form_is_scaled_and_a_number_is_one() -> None:
    axes = Axes()
    value = normal(2, 1, 3)
    (form,), tensors = forms_of(axes, value)
    close(summed_up(axes, form.scaled(-2.5), tensors), -2.5 * value)
    close(summed_up(axes, Form.number(4).scaled(0.5), {}), torch.tensor(2.0))


EQUATIONS = [
    ("ab,bc->ac", [(2, 3), (3, 4)]),
    ("ab,bc->ca", [(2, 3), (3, 4)]),
    ("ab,ab->ab", [(2, 3), (2, 3)]),
    ("ab,ba->", [(2, 3), (3, 2)]),
    ("ab,ab->b", [(2, 3), (1, 3)]),
    ("ab,ab->ab", [(2, 1), (1, 3)]),
    ("ab,cd->dabc", [(2, 3), (4, 5)]),
    ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]),
    ("ab,ac,ad,b->a", [(2, 3), (2, 4), (2, 5), (3,)]),
    ("ab->", [(2, 3)]),
    ("ab->ba", [(2, 3)]),
    ("ab->b", [(1, 3)]),
    (",a->a", [(), (3,)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_a_product_is_an_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    axes = Axes()
    values = [normal(1, *shape, seed=place)[0] for place, shape in enumerate(shapes)]
    forms, tensors = forms_of(axes, *values)
    inputs, _, output = equation.partition("->")
    found = product(axes, forms, inputs.split(","), output)
    expected = torch.einsum(equation, *values)
    assert [1 if axis is None else axes.sizes[axis] for axis in found.axes] == list(expected.shape)
    close(summed_up(axes, found, tensors), expected)


def test_sums_are_multiplied_out() -> None:
    axes = Axes()
    a, b, c = normal(2, 3), normal(3, seed=1), normal(2, 1, seed=2)
    forms, tensors = forms_of(axes, a, b, c)
    left, right = added(axes, forms), added(axes, [forms[0], Form.number(-2)])
    found = product(axes, [left, right], ["ij", "ij"], "j")
    assert len(found.terms) == 6
    close(summed_up(axes, found, tensors), ((a + b + c) * (a - 2)).sum(0))


def test_a_sum_is_broadcast() -> None:
    axes = Axes()
    values = [normal(2, 1, 4), normal(3, 1, seed=1), normal(4, seed=2), normal(1, 1, seed=3)]
    forms, tensors = forms_of(axes, *values)
    found = added(axes, [*forms, Form.number(1.5)])
    assert len(found.terms) == 5
    close(summed_up(axes, found, tensors), sum(values, torch.tensor(1.5)))


def test_what_is_the_same_along_an_axis_is_counted_when_it_is_summed() -> None:
    """Where the factors of a term do not have an axis, its sum is so many times the term."""
    axes = Axes()
    forms, tensors = forms_of(axes, normal(2), normal(2, 3, seed=1))
    wide = added(axes, [product(axes, [forms[0]], ["i"], "i"), Form.number(2)])
    repeated = Form((axes.new(5), *wide.axes), wide.terms)
    found = product(axes, [repeated, forms[1]], ["ki", "ij"], "j")
    first, second = tensors["tensor 0"], tensors["tensor 1"]
    close(summed_up(axes, found, tensors), 5 * ((first + 2)[:, None] * second).sum(0))


@pytest.mark.parametrize("index", [torch.tensor([3, 0, 0]), torch.tensor([[1, 2], [3, 3], [0, 1]]), torch.tensor(2)])
def test_rows_are_read_by_an_index(index: Tensor) -> None:
    axes = Axes()
    values = [normal(4, 3), normal(4, 1, seed=1), normal(3, seed=2)]
    forms, tensors = forms_of(axes, *values)
    found = rows_of(axes, added(axes, forms), RowsOf(index))
    close(summed_up(axes, found, tensors), (values[0] + values[1] + values[2])[index])


def test_rows_of_one_row_and_of_an_index_that_is_one_long() -> None:
    axes = Axes()
    values = [normal(1, 3), normal(4, 3, seed=1)]
    forms, tensors = forms_of(axes, *values)
    for form, value, index in zip(forms, values, (torch.tensor([0, 0]), torch.tensor([[2]])), strict=True):
        close(summed_up(axes, rows_of(axes, form, RowsOf(index)), tensors), value[index])


def test_rows_of_what_is_no_tensors_first_axis_are_refused() -> None:
    axes = Axes()
    (form,), _ = forms_of(axes, normal(4, 3))
    index = RowsOf(torch.tensor([1, 2]))
    turned = product(axes, [form], ["ij"], "ji")
    for refused in (turned, rows_of(axes, form, index)):
        with pytest.raises(UnsupportedError, match="rows of what is no tensor's first axis"):
            rows_of(axes, refused, index)


def test_a_diagonal_is_refused() -> None:
    axes = Axes()
    (form,), _ = forms_of(axes, normal(4))
    with pytest.raises(UnsupportedError, match="a diagonal"):
        product(axes, [Form(form.axes * 2, form.terms)], ["ij"], "ij")


def test_too_many_terms_are_refused() -> None:
    axes = Axes()
    form = Form.of(axes, "x", (2,))
    most = added(axes, [form] * MOST_TERMS)
    assert len(most.terms) == MOST_TERMS
    with pytest.raises(UnsupportedError, match=f"a sum of more than {MOST_TERMS} terms"):
        added(axes, [most, form])
    eight = added(axes, [form] * 8)
    assert len(product(axes, [eight, eight], ["i", "i"], "i").terms) == 64
    with pytest.raises(UnsupportedError, match=f"a product of more than {MOST_TERMS} terms"):
        product(axes, [eight, added(axes, [form] * 9)], ["i", "i"], "i")


# Parameters that stand in the same place.


def value_of(axes: Axes, terms: Iterable[Term], tensors: Tensors) -> Tensor:
    return summed_up(axes, Form((), tuple(terms)), tensors)


def with_sums(tensors: Tensors, sums: Mapping[Hashable, Parts]) -> dict[Hashable, Tensor]:
    """The tensors, and those that are sums of them."""
    made = {
        name: sum(
            (c * tensors[source.name].permute(order) for c, source, order in parts),
            torch.zeros((), dtype=torch.float64),
        )
        for name, parts in sums.items()
    }
    return {**tensors, **made}


def quadratic(axes: Axes, coefficient: float, name: str, flip: bool = False, site: str = "z") -> Term:
    """sum_ij z_ig Y_ij z_jh p_gh, or p_hg, with new names for its axes."""
    i, j, g, h = axes.new(4), axes.new(4), axes.new(3), axes.new(3)
    parts = ((site, (i, g)), ("Y", (i, j)), (site, (j, h)), (name, (h, g) if flip else (g, h)))
    return Term(coefficient, tuple(Factor(Source(part), there) for part, there in parts))


def test_terms_that_differ_in_one_parameter_only_are_merged() -> None:
    axes = Axes()
    tensors: dict[Hashable, Tensor] = {
        name: normal(*shape, seed=place)
        for place, (name, shape) in enumerate(
            {"z": (4, 3), "x": (4, 3), "Y": (4, 4), "p": (3, 3), "q": (3, 3), "r": (3, 3)}.items()
        )
    }
    terms = [
        quadratic(axes, 1.0, "p"),
        quadratic(axes, -2.0, "q"),
        quadratic(axes, 0.5, "r", flip=True),
        quadratic(axes, 3.0, "p", site="x"),
        Term(0.25, ()),
    ]
    found, sums = merged(terms, {"p", "q", "r"})
    assert len(found) == 3
    assert [len(parts) for parts in sums.values()] == [3]
    close(value_of(axes, found, with_sums(tensors, sums)), value_of(axes, terms, tensors))


def test_terms_that_differ_in_more_are_not_merged() -> None:
    """Two parameters in a term, one with an axis of its own, one of which rows are read, or none that may be summed."""
    axes = Axes()
    tensors: dict[Hashable, Tensor] = {"z": normal(4, 3), "Y": normal(4, 4), "p": normal(3, 3), "v": normal(4, 2)}
    twice = quadratic(axes, 1.0, "p")
    twice = Term(1.0, (*twice.factors, Factor(Source("p"), twice.factors[-1].axes)))
    i, g, own = axes.new(4), axes.new(3), axes.new(2)
    alone = Term(1.0, (Factor(Source("z"), (i, g)), Factor(Source("v"), (i, own))))
    j, h = axes.new(4), axes.new(3)
    read_rows = Source("p", RowsOf(torch.tensor([0, 1, 1, 2])))
    at_rows = Term(1.0, (Factor(Source("Y"), (i, j)), Factor(Source("z"), (i, h)), Factor(read_rows, (j, h))))
    terms = list(itertools.chain.from_iterable([each, each] for each in (twice, alone, at_rows)))
    found, sums = merged(terms, {"p", "v"})
    assert found == terms
    assert sums == {}
    same = [quadratic(axes, 1.0, "p"), quadratic(axes, 2.0, "p")]
    assert merged(same, set()) == (same, {})
    close(
        value_of(axes, merged(same, {"p"})[0], with_sums(tensors, merged(same, {"p"})[1])),
        value_of(axes, same, tensors),
    )
