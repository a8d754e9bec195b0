"""Recipes: sizes, disjointness, class structure, determinism, and the one-line refusals."""

from __future__ import annotations

import math

import pytest
import torch

from scool_ppl.dealing import Partition, Pool, stratified
from scool_ppl.errors import InputError
from scool_ppl.partition import RECIPES
from scool_ppl.randomness import generator


def make_pool(per_class: int = 100, classes: int = 10, held_out: int = 20, seed: int = 0) -> Pool:
    """A shuffled pool with the same number of images of every class."""
    mixed = torch.randperm(per_class * classes, generator=generator(7, "labels"))
    train = torch.arange(classes).repeat_interleave(per_class)[mixed]
    test = torch.arange(classes).repeat(held_out)
    looks = torch.randn(classes, 16, generator=generator(7, "looks")) * 2
    inputs = [
        looks[y] + torch.randn(len(y), 16, generator=generator(7, "inputs", i)) for i, y in enumerate((train, test))
    ]
    return Pool(train, test, classes, generator(seed, "federation"), *inputs)


def counts(pool: Pool, partition: Partition) -> torch.Tensor:
    """(K, C) images of each class, training and validation together, counted one by one."""
    table = torch.zeros(len(partition.train), pool.num_classes, dtype=torch.long)
    for client, lists in enumerate(zip(partition.train, partition.validation, strict=True)):
        for rows in lists:
            for row in rows.tolist():
                table[client, pool.train_labels[row]] += 1
    return table


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_deals_disjoint_rows_and_repeats_by_seed(name: str) -> None:
    first, again, other = (RECIPES[name](make_pool(seed=seed), clients=10, train=30) for seed in (0, 0, 1))
    owned = torch.cat([*first.train, *first.validation])
    assert len(owned.unique()) == len(owned)
    assert int(owned.min()) >= 0
    assert int(owned.max()) < 1000
    assert len(first.train) == len(first.validation) == len(first.test) == 10
    assert [len(a) + len(b) for a, b in zip(first.train, first.validation, strict=True)] == [30] * 10
    assert [len(rows) for rows in first.validation] == [6] * 10
    for split in ("train", "validation", "test"):
        pairs = zip(getattr(first, split), getattr(again, split), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(first.train[0], other.train[0])


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_shares_the_pool_when_train_is_not_given(name: str) -> None:
    pool = make_pool()
    partition = RECIPES[name](pool, clients=10, validation=0.0)
    assert all(len(rows) == 0 for rows in partition.validation)
    total = sum(len(rows) for rows in partition.train)
    # Dirichlet leaves rows of the classes that few clients ask for; the others use all of a balanced pool.
    assert total == 1000 if name != "dirichlet" else 500 < total <= 1000


@pytest.mark.parametrize("name", sorted(RECIPES))
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clients": 0}, "clients=0"),
        ({"train": 0}, "train=0"),
        ({"validation": 1.0}, "validation=1.0"),
        ({"validation": math.nan}, "validation=nan"),
        ({"test": 0}, "test=0"),
        ({"test": 201}, "200 held-out"),
        ({"clients": 10, "train": 101}, "lower"),
        ({"clients": 5000}, "lower"),
    ],
)
def test_every_recipe_refuses_impossible_common_options(name: str, options: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        RECIPES[name](make_pool(), **options)
    assert "\n" not in str(caught.value)


def test_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    for recipe in RECIPES.values():
        recipe(make_pool(), clients=10)
    assert torch.equal(before, torch.get_rng_state())


def test_stratified_keeps_label_shares_to_within_one() -> None:
    labels = torch.tensor([0] * 300 + [1] * 100 + [2] * 7)
    picked = stratified(labels, 60, generator(0, "test"))
    assert len(picked.unique()) == 60
    found = torch.bincount(labels[picked], minlength=3)
    assert ((found - 60 * torch.tensor([300, 100, 7]) / 407).abs() <= 1).all()
    assert len(stratified(labels, 0, generator(0, "test"))) == 0
    assert torch.equal(stratified(labels, 407, generator(0, "test")), torch.arange(407))


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


def test_groups_own_disjoint_classes_and_test_on_them() -> None:
    pool = make_pool()
    partition = RECIPES["groups"](pool, clients=7, groups=3, classes=3, train=40)
    assert partition.groups == (0, 0, 0, 1, 1, 2, 2)
    table = counts(pool, partition)
    owners: dict[int, int] = {}
    for client, group in enumerate(partition.groups):
        classes = table[client].nonzero().flatten().tolist()
        assert len(classes) == 3
        assert pool.test_labels[partition.test[client]].unique().tolist() == classes
        assert len(partition.test[client]) == 60
        assert all(owners.setdefault(label, group) == group for label in classes)
    assert len(owners) == 9


def test_groups_refuses_more_classes_than_there_are() -> None:
    with pytest.raises(InputError, match="4 x 3 different classes, the data has 10"):
        RECIPES["groups"](make_pool(), groups=4, classes=3)
    with pytest.raises(InputError, match="groups=21, expected 1 to 20"):
        RECIPES["groups"](make_pool(), groups=21)
    with pytest.raises(InputError, match="group 0 of groups needs 4 x 51 = 204 images, the pool has 200"):
        RECIPES["groups"](make_pool(), groups=5, train=51)


def test_permuted_groups_have_their_own_permutation() -> None:
    partition = RECIPES["permuted"](make_pool(), clients=20, groups=4, train=50)
    assert partition.groups == (0,) * 5 + (1,) * 5 + (2,) * 5 + (3,) * 5
    assert partition.relabel is not None
    assert torch.equal(partition.relabel.sort(1).values, torch.arange(10).expand(20, 10))
    rows = [tuple(row) for row in partition.relabel.tolist()]
    assert all(rows[i] == rows[j] for i in range(20) for j in range(20) if i // 5 == j // 5)
    assert len(set(rows)) == 4
    assert all(torch.equal(own, torch.arange(200)) for own in partition.test)


def test_permuted_flip_moves_the_same_labels_and_no_other() -> None:
    partition = RECIPES["permuted"](make_pool(), groups=9, flip=4, clients=9)
    assert partition.relabel is not None
    moved = partition.relabel != torch.arange(10)
    assert (moved.sum(1) == 4).all()
    assert (moved == moved[0]).all()
    # Four things have nine permutations that leave none in place: all were found.
    assert len({tuple(row) for row in partition.relabel.tolist()}) == 9


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"groups": 10, "flip": 4}, "10 different ways to exchange 4 labels, there are 9"),
        ({"groups": 2, "flip": 0}, "there are 1"),
        ({"groups": 1, "flip": 1}, "there are 0"),
        ({"flip": 11}, "flip=11, expected 0 to 10"),
        ({"ragged": 1.0}, "ragged=1.0"),
        ({"groups": 0}, "groups=0"),
        ({"clients": 20, "train": 60}, "permuted needs 20 x 60 = 1200 images, the pool has 1000; lower train"),
    ],
)
def test_permuted_refusals_say_what_works(options: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        RECIPES["permuted"](make_pool(), **options)


def test_permuted_without_flipped_labels_is_one_plain_group() -> None:
    partition = RECIPES["permuted"](make_pool(), groups=1, flip=0)
    assert partition.relabel is not None
    assert torch.equal(partition.relabel, torch.arange(10).expand(20, 10))


def test_ragged_sizes_fill_the_range() -> None:
    pool = make_pool(per_class=1500)
    partition = RECIPES["permuted"](pool, clients=300, train=40, ragged=0.3)
    sizes = counts(pool, partition).sum(1)
    assert int(sizes.min()) == 28
    assert int(sizes.max()) == 52
    # A uniform draw from 25 sizes has mean 40 and standard deviation 7.2: 300 of them stay within 5 errors of it.
    assert abs(float(sizes.float().mean()) - 40) < 5 * 7.2 / 300**0.5
    fitted = RECIPES["permuted"](make_pool(), clients=20, ragged=0.5)
    assert len({len(rows) for rows in fitted.train}) > 3


def test_dirichlet_shares_have_the_moments_of_their_distribution() -> None:
    pool = make_pool(per_class=20000, classes=4)
    table = counts(pool, RECIPES["dirichlet"](pool, clients=400, alpha=0.5, train=100))
    assert table.sum(1).tolist() == [100] * 400
    shares = table.double() / 100
    # Dir(a, a, a, a): mean 1/4, variance (1/4)(3/4)/(4a + 1) = 0.0625.
    assert (shares.mean(0) - 0.25).abs().max() < 5 * (0.0625 / 400) ** 0.5
    assert abs(float(shares.var(0).mean()) - 0.0625) < 0.01


def test_dirichlet_tests_on_own_classes_and_keeps_the_minimum() -> None:
    pool = make_pool()
    partition = RECIPES["dirichlet"](pool, clients=20, alpha=0.1, minimum=15)
    table = counts(pool, partition)
    assert int(table.sum(1).min()) >= 15
    assert (table.sum(0) <= 100).all()
    for client, rows in enumerate(partition.test):
        expected = torch.isin(pool.test_labels, table[client].nonzero().flatten()).nonzero().flatten()
        assert torch.equal(rows, expected)


def test_dirichlet_gives_up_with_advice() -> None:
    with pytest.raises(InputError, match="expected minimum=50; use minimum=") as caught:
        RECIPES["dirichlet"](make_pool(), clients=20, alpha=0.001, minimum=50)
    advice = int(str(caught.value).split("use minimum=")[1].split(",")[0])
    RECIPES["dirichlet"](make_pool(), clients=20, alpha=0.001, minimum=advice)
    with pytest.raises(InputError, match="alpha=nan"):
        RECIPES["dirichlet"](make_pool(), alpha=math.nan)
    with pytest.raises(InputError, match="minimum=10, expected 1 to 5"):
        RECIPES["dirichlet"](make_pool(), train=5)


def test_too_few_held_out_images_for_the_classes() -> None:
    with pytest.raises(InputError, match="no held-out image of its classes"):
        RECIPES["pathological"](make_pool(), classes=1, test=5)


def test_a_client_keeps_one_training_image() -> None:
    partition = RECIPES["iid"](make_pool(), clients=3, train=1, validation=0.9)
    assert [len(rows) for rows in partition.train] == [1, 1, 1]
