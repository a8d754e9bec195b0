"""Recipes by label: iid, Dirichlet and pathological shares against their definitions, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch

from scool_ppl.data.recipes import RECIPES
from scool_ppl.data.specs import load_federation
from scool_ppl.errors import InputError
from tests.helpers.pools import counts, make_pool


def within(found: torch.Tensor, mean: float, variance: float) -> bool:
    """Are all within five standard deviations of their expectation?"""
    return bool(((found.double() - mean).abs() <= 5 * variance**0.5).all())


def test_iid_shares_all_rows_equally_and_at_random() -> None:
    pool = make_pool()
    partition = RECIPES["iid"](pool, clients=10, validation=0.3)
    assert [len(rows) for rows in partition.train] == [70] * 10
    assert [len(rows) for rows in partition.validation] == [30] * 10
    assert torch.cat([*partition.train, *partition.validation]).sort().values.tolist() == list(range(1000))
    assert all(torch.equal(rows, torch.arange(200)) for rows in partition.test)
    assert partition.groups == (0,) * 10
    assert partition.relabel is None
    assert partition.truth is None
    # Without replacement, a client's images of one class are hypergeometric: n = 100 of N = 1000, 100 of the class.
    assert within(counts(pool, partition), 10, 100 * 0.1 * 0.9 * (1000 - 100) / (1000 - 1))


def test_a_client_keeps_one_training_image() -> None:
    partition = RECIPES["iid"](make_pool(), clients=3, train=1, validation=0.9)
    assert [len(rows) for rows in partition.train] == [1, 1, 1]


def test_dirichlet_shares_have_the_moments_of_their_distribution() -> None:
    pool = make_pool(per_class=20000, classes=4)
    table = counts(pool, RECIPES["dirichlet"](pool, clients=400, alpha=0.5, train=100))
    assert table.sum(1).tolist() == [100] * 400
    shares = table.double() / 100
    # Dir(a, a, a, a): mean 1/4, variance (1/4)(3/4)/(4a + 1) = 0.0625.
    assert (shares.mean(0) - 0.25).abs().max() < 5 * (0.0625 / 400) ** 0.5
    assert abs(float(shares.var(0).mean()) - 0.0625) < 0.01


def test_dirichlet_gives_everyone_the_same_fraction_of_a_class_that_is_too_small() -> None:
    """Five clients ask for 10 images of each of two classes, of which one has 10 in all: each gets 2 of these."""
    labels = torch.arange(2).repeat_interleave(torch.tensor([10, 200]))
    pool = make_pool(classes=2)._replace(train_labels=labels, train_inputs=torch.zeros(210, 16))
    table = counts(pool, RECIPES["dirichlet"](pool, clients=5, alpha=1e9, train=20))
    assert table.tolist() == [[2, 10]] * 5


def test_dirichlet_has_fewer_classes_the_smaller_alpha_is() -> None:
    pool = make_pool(per_class=1000)
    shares = {a: counts(pool, RECIPES["dirichlet"](pool, clients=40, alpha=a, train=100)) for a in (0.05, 0.5, 1e6)}
    held = {alpha: float((table > 0).sum(1).double().mean()) for alpha, table in shares.items()}
    assert held[0.05] < 4 < held[0.5] < 9 < held[1e6] == 10
    assert set(shares[1e6].flatten().tolist()) == {10}, "in the limit everyone has the same of every class"


def test_dirichlet_tests_on_own_classes_and_keeps_the_minimum() -> None:
    pool = make_pool()
    partition = RECIPES["dirichlet"](pool, clients=20, alpha=0.1, minimum=15)
    table = counts(pool, partition)
    assert int(table.sum(1).min()) >= 15
    assert (table.sum(0) <= 100).all()
    for client, rows in enumerate(partition.test):
        expected = torch.isin(pool.test_labels, table[client].nonzero().flatten()).nonzero().flatten()
        assert torch.equal(rows, expected)


@pytest.mark.parametrize(("alpha", "test"), [(0.1, None), (0.5, None), (0.5, 150), (1e6, 100)])
def test_dirichlet_tests_as_trained_where_asked(alpha: float, test: int | None) -> None:
    """Of n held-out images n p_c are of class c, to within one; n is the largest for which no class has too few."""
    options = {"clients": 20, "alpha": alpha, "test": test, "train": 40}
    pool = make_pool(held_out=30)
    balanced = RECIPES["dirichlet"](pool, **options)
    skewed = RECIPES["dirichlet"](make_pool(held_out=30), **options, tested="as-trained")
    default = RECIPES["dirichlet"](make_pool(held_out=30), **options, tested="balanced")
    table, changed = counts(pool, balanced), 0
    for i in range(20):
        for split in ("train", "validation"):
            assert torch.equal(getattr(balanced, split)[i], getattr(skewed, split)[i])
        assert torch.equal(balanced.test[i], default.test[i])
        tested = skewed.test[i]
        assert len(tested) >= 1
        assert set(tested.tolist()) <= set(balanced.test[i].tolist())
        assert tested.tolist() == sorted(set(tested.tolist()))
        stock = [int((pool.test_labels[balanced.test[i]] == label).sum()) for label in range(10)]
        found = [int((pool.test_labels[tested] == label).sum()) for label in range(10)]
        own = [int(count) for count in table[i]]
        for label in range(10):
            assert abs(found[label] - len(tested) * own[label] / sum(own)) < 1

        def fits(size: int, own: list[int] = own, stock: list[int] = stock) -> bool:
            return all(size * count <= here * sum(own) for count, here in zip(own, stock, strict=True))

        assert fits(len(tested))
        assert not fits(len(tested) + 1)
        changed += not torch.equal(tested, balanced.test[i])
    assert changed == (20 if alpha < 1 else 0), "who has as many of every class is tested on all"


def test_held_out_images_are_drawn_at_random_for_each_client() -> None:
    pool = make_pool(held_out=30)
    partition = RECIPES["dirichlet"](pool, clients=10, alpha=0.5, train=40, tested="as-trained")
    seen = torch.cat(partition.test)
    first = torch.arange(len(pool.test_labels)) < 150
    # Every image is as likely as any other of its class: half of those drawn are in the first half.
    assert within(first[seen].double().mean(), 0.5, 0.25 / len(seen))


def test_as_trained_needs_a_held_out_image_of_every_class() -> None:
    pool = make_pool(classes=2)._replace(test_labels=torch.zeros(20, dtype=torch.long), test_inputs=torch.zeros(20, 16))
    options = {"clients": 2, "alpha": 1e6, "train": 20}
    assert [len(rows) for rows in RECIPES["dirichlet"](pool, **options).test] == [20, 20]
    with pytest.raises(
        InputError, match=r"cannot test client 0 as trained: class 1 has no held-out .* tested=balanced"
    ):
        RECIPES["dirichlet"](pool, **options, tested="as-trained")


def test_how_a_client_is_tested_is_one_of_two_words() -> None:
    federation = load_federation("dirichlet:digits:clients=5,alpha=0.5,tested=as-trained")
    train, test = (federation.label_counts(split).double() for split in ("train", "test"))
    validation = federation.label_counts("validation")
    shares = (train + validation) / (train + validation).sum(1, keepdim=True)
    assert float((test - test.sum(1, keepdim=True) * shares).abs().max()) < 1
    with pytest.raises(InputError, match=r"tested value 'trained'; known: as-trained, balanced"):
        load_federation("dirichlet:digits:tested=trained")


def test_dirichlet_gives_up_with_advice() -> None:
    with pytest.raises(InputError, match="expected minimum=50; use minimum=") as caught:
        RECIPES["dirichlet"](make_pool(), clients=20, alpha=0.001, minimum=50)
    advice = int(str(caught.value).split("use minimum=")[1].split(",")[0])
    RECIPES["dirichlet"](make_pool(), clients=20, alpha=0.001, minimum=advice)
    with pytest.raises(InputError, match="alpha=nan"):
        RECIPES["dirichlet"](make_pool(), alpha=math.nan)
    with pytest.raises(InputError, match="minimum=10, expected 1 to 5"):
        RECIPES["dirichlet"](make_pool(), train=5)


def test_pathological_clients_have_distinct_classes_in_equal_shards() -> None:
    pool = make_pool()
    partition = RECIPES["pathological"](pool, clients=20, classes=2)
    table = counts(pool, partition)
    assert ((table > 0).sum(1) == 2).all()
    # K = M P / N: 4 shards of each class, 25 images each, and every shard is somebody's.
    assert set(table[table > 0].tolist()) == {25}
    assert ((table > 0).sum(0) == 4).all()
    # A row of shards has one of each class: five neighbours have all ten classes between them.
    assert ((table.view(4, 5, 10) > 0).sum(1) == 1).all()


def test_pathological_odd_train_and_test_images_of_own_classes() -> None:
    pool = make_pool()
    partition = RECIPES["pathological"](pool, clients=10, classes=2, train=31, test=100)
    table = counts(pool, partition)
    assert table.sum(1).tolist() == [31] * 10
    assert set(table[table > 0].tolist()) == {15, 16}
    for client, rows in enumerate(partition.test):
        assert pool.test_labels[rows].unique().tolist() == table[client].nonzero().flatten().tolist()
        assert len(rows) == 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"classes": 3}, r"divisor of 10 classes: one of \[1, 2, 5, 10\]"),
        ({"classes": 0}, "divisor"),
        ({"classes": 11}, "divisor"),
        ({"clients": 12}, "use clients=15"),
        ({"train": 1}, "use train from 2 to 50"),
        ({"train": 52}, "use train from 2 to 50"),
    ],
)
def test_pathological_refusals_say_what_works(options: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        RECIPES["pathological"](make_pool(), **options)
    RECIPES["pathological"](make_pool(), clients=15, train=50)


def test_the_truth_of_pathological_is_who_has_the_same_classes() -> None:
    federation = load_federation("pathological:digits:clients=40,classes=2,train=10", seed=1)
    sets = [frozenset(federation.classes(client).tolist()) for client in range(40)]
    same = [[float(i != j and sets[i] == sets[j]) for j in range(40)] for i in range(40)]
    assert federation.truth is not None
    assert federation.truth.tolist() == same
    assert federation.truth.any()


def test_too_few_held_out_images_for_the_classes() -> None:
    with pytest.raises(InputError, match="no held-out image of its classes"):
        RECIPES["pathological"](make_pool(), classes=1, test=5)
