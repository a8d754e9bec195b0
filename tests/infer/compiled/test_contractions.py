"""Contractions against einsum, computed where something has changed and nowhere else."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import pytest
import torch
from torch import Tensor

from scool_ppl.infer.compiled.contractions import Contraction, Contractions, Rows, contraction, placed, read
from scool_ppl.infer.compiled.forms import (
    Axes,
    Axis,
    Factor,
    RowsOf,
    Source,
)
from tests.helpers.priors import rng
from tests.helpers.small import close, normal

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5}
Tensors = Mapping[Hashable, Tensor]


def axes_of() -> tuple[Axes, dict[str, Axis]]:
    axes = Axes()
    return axes, {name: axes.new(size) for name, size in SIZES.items()}


def planned(products: Contractions, equation: str, **names: str) -> Contraction:
    """The plan of an einsum whose operands are the tensors "0", "1", ..., or others by these places."""
    letters = {letter: axis for axis, letter in enumerate(SIZES)}
    inputs, _, output = equation.partition("->")
    factors = [
        Factor(Source(names.get(f"_{place}", str(place))), tuple(letters[letter] for letter in part))
        for place, part in enumerate(inputs.split(","))
    ]
    return products.plan(factors, [letters[letter] for letter in output])


def contractions(equation: str, fixed: Iterable[Hashable] = (), seed: int = 0) -> Contractions:
    """Random tensors for an einsum's operands."""
    inputs = equation.partition("->")[0].split(",")
    shapes = [[SIZES[letter] for letter in part] for part in inputs]
    tensors: dict[Hashable, Tensor] = {
        str(place): normal(1, *shape, seed=seed + place)[0] for place, shape in enumerate(shapes)
    }
    return Contractions(axes_of()[0], tensors, frozenset(fixed))


def random_equation(seed: int) -> str:
    """Two to four factors of up to three axes, some of them in common, and some of these axes in any order."""
    random = rng(seed)

    def drawn(letters: Sequence[str], most: int) -> str:
        order = torch.randperm(len(letters), generator=random).tolist()
        count = int(torch.randint(most + 1, (), generator=random))
        return "".join(letters[place] for place in order[:count])

    factors = [drawn("abcd", 3) for _ in range(2 + seed % 3)]
    there = sorted({*"".join(factors)})
    return ",".join(factors) + "->" + drawn(there, len(there))


def in_order(products: Contractions, node: Contraction, output: str) -> Tensor:
    """The node's tensor with its axes in the order of `output`."""
    out = [list(SIZES).index(letter) for letter in output]
    assert sorted(node.axes) == sorted(out)
    return placed(products.value(node), node.axes, out)


@pytest.mark.parametrize("seed", range(60))
def test_a_contraction_is_an_einsum(seed: int) -> None:
    equation = random_equation(seed)
    products = contractions(equation, seed=seed)
    node = planned(products, equation)
    assert node.needs == set(products.tensors)
    expected = torch.einsum(equation, *products.tensors.values())
    close(in_order(products, node, equation.partition("->")[2]), expected)


@pytest.mark.parametrize("equation", ["a,ab,bc->a", "ab,ab->ab", "ab,ab->", "abc,bcd,ad->da", "a,a,b->ba", "ab,bc->ca"])
def test_a_contraction_of_more_than_one_factor_is_in_the_order_that_is_wanted(equation: str) -> None:
    products = contractions(equation)
    expected = torch.einsum(equation, *products.tensors.values())
    close(products.value(planned(products, equation)), expected)


def test_the_same_factor_twice_is_its_square() -> None:
    products = contractions("ab,a->")
    node = planned(products, "ab,ab,a->", _1="0", _2="1")
    first, second = products.tensors.values()
    close(products.value(node), (first.square() * second[:, None]).sum())


def test_rows_of_a_tensor_take_part_in_a_contraction() -> None:
    axes, names = axes_of()
    index = RowsOf(torch.tensor([[1, 0, 1], [0, 0, 1]]))
    column = RowsOf(torch.tensor([[1], [0]]))  # its second dimension has no name
    tensors: dict[Hashable, Tensor] = {"x": normal(2, 4), "y": normal(2, 3, 4, seed=1)}
    products = Contractions(axes, tensors)
    there = (names["a"], names["b"], names["c"])
    node = products.plan([Factor(Source("x", index), there), Factor(Source("y"), there)], there[:1])
    close(products.value(node), (tensors["x"][index.index] * tensors["y"]).sum((1, 2)))
    other = products.plan([Factor(Source("x", column), there[::2]), Factor(Source("y"), there)], there[1:2])
    close(products.value(other), (tensors["x"][column.index] * tensors["y"]).sum((0, 2)))
    close(read(tensors["x"], Source("x", index)), tensors["x"][index.index])
    assert read(tensors["x"], Source("x")) is tensors["x"]


def everything_in(node: Contraction) -> Iterator[Contraction]:
    yield node
    for part in node.parts:
        yield from everything_in(part)


def test_what_nothing_has_changed_for_is_kept() -> None:
    equation = "ab,bc,cd,d->a"
    products = contractions(equation)
    node = planned(products, equation)
    first = products.value(node)
    assert products.value(node) is first
    before = {id(each): products.value(each) for each in everything_in(node)}
    for name in ("0", "2", "3"):
        products.set(name, products.tensors[name] + 1)
        expected = torch.einsum(equation, *products.tensors.values())
        close(products.value(node), expected)
        for each in everything_in(node):
            kept = products.value(each) is before[id(each)]
            assert kept == (name not in each.needs), (name, each.needs)
        before = {id(each): products.value(each) for each in everything_in(node)}


def test_each_contraction_is_computed_once_for_each_change() -> None:
    """Of a chain of four, two meet what they depend on: counted by what combines them."""
    equation = "ab,bc,cd->"
    products = contractions(equation)
    nodes = [planned(products, equation), planned(products, "bc,cd->b", _0="1", _1="2")]
    counts: dict[frozenset[Hashable], int] = {}

    def counted(node: Contraction) -> None:
        combine = node.combine
        if combine is None:
            return

        def counting(*parts: Tensor) -> Tensor:
            counts[node.needs] = counts.get(node.needs, 0) + 1
            return combine(*parts)

        node.combine = counting

    for each in {id(each): each for node in nodes for each in everything_in(node)}.values():
        counted(each)
    for _ in range(2):
        for node in nodes:
            products.value(node)
    once = dict(counts)
    products.set("0", products.tensors["0"] * 2)
    for _ in range(2):
        for node in nodes:
            products.value(node)
    assert once
    assert any("0" in needs for needs in once)
    assert any("0" not in needs for needs in once)
    for needs, count in counts.items():
        assert count == (2 if "0" in needs else 1) * once[needs]


def test_contractions_with_the_same_parts_share_them() -> None:
    products = contractions("ab,bc,cd->a")
    assert planned(products, "ab,bc->a") is planned(products, "ab,bc->a")
    shared = {id(node) for node in everything_in(planned(products, "ab,bc->a"))}
    longer = {id(node) for node in everything_in(planned(products, "ab,bc,cd->a"))}
    assert shared & longer


def test_what_never_changes_is_multiplied_once() -> None:
    """Though the product of the other two takes fewer multiplications."""
    equation = "ab,b,b->a"
    products = contractions(equation, fixed=("0", "1"))
    node = planned(products, equation)
    fixed = [each for each in everything_in(node) if not each.needs and each.parts]
    assert fixed, "there is a product of the two"
    value = products.value(node)
    before = [products.value(each) for each in fixed]
    products.set("2", products.tensors["2"] + 1)
    close(products.value(node), torch.einsum(equation, *products.tensors.values()))
    assert not torch.equal(products.value(node), value)
    assert all(products.value(each) is old for each, old in zip(fixed, before, strict=True))


@pytest.mark.parametrize(
    "equation",
    [
        "ab,bc->ac",
        "ab,bc->ca",
        "ab,cb->ac",
        "b,ab->a",
        "ab,ac,bc->a",
        "ca,b,cb->a",
        "ab,b,ac,cd->ad",
        "abc,c->ab",
        "a,b->ab",
    ],
)
@pytest.mark.parametrize("moving", ["0", "1", "nobody"])
def test_some_rows_are_those_of_the_whole(equation: str, moving: str) -> None:
    products = contractions(equation)
    node = planned(products, equation)
    index = torch.tensor([1, 0, 1])
    found = products.rows(node, Rows(frozenset({list(SIZES).index("a")}), index, moving))
    close(found, products.value(node).index_select(node.axes.index(list(SIZES).index("a")), index))


@pytest.mark.parametrize("equation", ["ab,bc->ac", "ab,ac->cb", "ab,ac,bd->cd", "ba,bc->ac", "ab,ab->b", "ab,ac,bc->a"])
@pytest.mark.parametrize("moving", ["0", "1"])
def test_what_moves_in_some_rows_is_as_if_it_were_set_anew(equation: str, moving: str) -> None:
    products, expected = contractions(equation), contractions(equation)
    node, rows = planned(products, equation), torch.tensor([1, 0])
    products.value(node)
    moved = normal(2, *products.tensors[moving].shape[1:], seed=9)
    after = products.tensors[moving].index_add(0, rows, moved)
    products.shift(moving, after, rows, moved)
    expected.set(moving, after)
    close(products.value(node), expected.value(planned(expected, equation)))


def test_what_moves_in_some_rows_is_added_to_what_is_known() -> None:
    products = contractions("ab,ac->cb")
    node, rows = planned(products, "ab,ac->cb"), torch.tensor([1])
    known = products.value(node)
    products.shift("0", products.tensors["0"], rows, torch.zeros_like(products.tensors["0"][rows]))
    assert node.value is not None
    close(node.value, known)


def test_no_more_than_some_rows_are_computed() -> None:
    """Of what moves; what does not is computed once, and so is a matrix of which columns would be wanted."""
    rows = Rows(frozenset({list(SIZES).index("a")}), torch.tensor([1]), "0")
    products = contractions("ab,bc,cd->ad")
    node = planned(products, "ab,bc,cd->ad")
    for _ in range(2):
        products.rows(node, rows)
    assert {each.needs for each in everything_in(node) if each.value is not None} >= {
        frozenset({"1"}),
        frozenset({"2"}),
    }
    assert not [each for each in everything_in(node) if each.parts and "0" in each.needs and each.value is not None]
    products.rows(node, rows._replace(moving="nobody"))
    assert node.value is not None
    products = contractions("b,ba->a")
    node = planned(products, "b,ba->a")
    products.rows(node, rows)
    assert node.value is not None


@pytest.mark.parametrize("equation", ["ca,ab,ad,cd->", "ca,b,ab,cb->", "ca,d,ad->"])
def test_between_some_rows_is_the_whole_with_nothing_elsewhere(equation: str) -> None:
    """Operand "0" is what moves, wherever its first axis is `c`, or `a` where it stands for another row."""
    sizes = {"a": 5, "b": 3, "c": 4, "d": 5}
    axes = Axes()
    named = {name: axes.new(size) for name, size in sizes.items()}
    rows, moved = torch.tensor([3, 1]), normal(2, 5, seed=7)
    tensors: dict[Hashable, Tensor] = {
        str(place): normal(*[sizes[letter] for letter in part], seed=place)
        for place, part in enumerate(equation.removesuffix("->").split(","))
    }
    products = Contractions(axes, tensors)
    factors = [
        Factor(Source(str(place)), tuple(named[letter] for letter in part))
        for place, part in enumerate(equation.removesuffix("->").split(","))
    ]
    node = products.plan(factors, ())
    found = products.between(node, Rows(frozenset({named["c"]}), rows, "0"), moved)
    whole = torch.zeros(4, 5, dtype=torch.float64).index_copy(0, rows, moved)
    close(found, torch.einsum(equation, whole, *list(tensors.values())[1:]))


def test_what_moves_may_be_there_twice() -> None:
    """f(d) = sum_ij d_ig C_ij D_gh d_jh, where d is 0 but for some rows."""
    axes = Axes()
    i, j, g, h = axes.new(6), axes.new(6), axes.new(2), axes.new(2)
    tensors: dict[Hashable, Tensor] = {"z": normal(6, 2), "C": normal(6, 6, seed=1), "D": normal(2, 2, seed=2)}
    products = Contractions(axes, tensors)
    pairs = (("z", (i, g)), ("C", (i, j)), ("D", (g, h)), ("z", (j, h)))
    node = products.plan([Factor(Source(name), there) for name, there in pairs], ())
    rows, moved = torch.tensor([4, 0, 3]), normal(3, 2, seed=3)
    found = products.between(node, Rows(frozenset({i, j}), rows, "z"), moved)
    whole = torch.zeros(6, 2, dtype=torch.float64).index_copy(0, rows, moved)
    close(found, torch.einsum("ig,ij,gh,jh->", whole, tensors["C"], tensors["D"], whole))


# Two tensors.


@pytest.mark.parametrize("left", ["ab", "ba"])
@pytest.mark.parametrize("right", ["bc", "cb"])
@pytest.mark.parametrize("out", ["ac", "ca"])
@pytest.mark.parametrize("turned", [False, True])
def test_matrices_are_multiplied_whichever_way_they_lie(left: str, right: str, out: str, turned: bool) -> None:
    """With many rows and few columns, too, and in memory by columns."""
    sizes = {"a": 30, "b": 4, "c": 2}
    values = [normal(*[sizes[letter] for letter in part], seed=place) for place, part in enumerate((left, right))]
    if turned:
        values = [value.mT.contiguous().mT for value in values]
    names = [tuple(map(ord, part)) for part in (left, right, out)]
    close(contraction(*names)(*values), torch.einsum(f"{left},{right}->{out}", *values))


OTHERS = [
    "a,a->a",
    "ab,ab->ab",
    "ab,ba->ab",
    "ab,ba->ba",
    "ab,b->ab",
    "b,ab->ab",
    "a,b->ba",
    ",ab->ab",
    "ab,ab->a",
    "ab,ab->",
]


@pytest.mark.parametrize("equation", [*OTHERS, "abc,cb->a", "abc,abd->cd", "a,a->", ",->"])
def test_two_tensors_are_contracted(equation: str) -> None:
    inputs, _, out = equation.partition("->")
    left, right = inputs.split(",")
    one, two = (normal(1, *[SIZES[name] for name in part], seed=len(part))[0] for part in (left, right))
    found = contraction(*(tuple(map(ord, part)) for part in (left, right, out)))(one, two)
    close(found, torch.einsum(equation, one, two))


def test_a_tensor_is_placed_among_axes_that_it_lacks() -> None:
    x = normal(2, 3)
    assert placed(x, (0, 1), (0, 1)) is x
    assert torch.equal(placed(x, (0, 1), (2, 1, 3, 0)), x.T[None, :, None, :])
