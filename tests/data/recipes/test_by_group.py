"""Recipes: sizes, disjointness, class structure, determinism, and the one-line refusals."""

from __future__ import annotations

import math

import pytest
import torch

from scool_ppl.base.randomness import generator
from scool_ppl.data.recipes import RECIPES
from scool_ppl.data.recipes.clusters import clusters
from scool_ppl.data.recipes.splitting import Partition, Pool, exchange, stratified
from scool_ppl.data.specs import load_federation
from scool_ppl.errors import InputError


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
    # Dirichlet leaves rows of the classes that few clients ask for; a group that its clients do not divide leaves fewer
    # rows than it has clients; the others use all of a balanced pool.
    least = {"dirichlet": 500, "disjoint": 991, "latent": 991, "shuffled-targets": 991}.get(name, 1000)
    assert least <= total <= 1000


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
        ({"clients": 5000}, "lower|use clients=500"),
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


def test_a_refused_size_of_a_group_fits_every_group_when_taken() -> None:
    labels = torch.arange(3).repeat_interleave(torch.tensor([100, 10, 40]))
    pool = make_pool(classes=3)._replace(train_labels=labels, train_inputs=torch.zeros(150, 16))
    with pytest.raises(InputError, match=r"needs 2 x 20 = 40 images, the pool has 10; lower train \(train=5 fits\)"):
        RECIPES["groups"](pool, clients=6, groups=3, classes=1, train=20)
    assert counts(pool, RECIPES["groups"](pool, clients=6, groups=3, classes=1, train=5)).sum(1).tolist() == [5] * 6


def test_disjoint_has_the_papers_sizes_and_classes() -> None:
    """CoBo, section 4.2: 80 clients, 10 clusters of 6 to 10 clients, two of each size, 10 of 100 classes each."""
    pool = make_pool(per_class=60, classes=100, held_out=2)
    partition = RECIPES["disjoint"](pool, clients=80, groups=10)
    assert partition.groups is not None
    assert [partition.groups.count(group) for group in range(10)] == [10, 10, 9, 9, 8, 8, 7, 7, 6, 6]
    table = counts(pool, partition)
    owners = torch.stack([table[[group == g for group in partition.groups]].sum(0) > 0 for g in range(10)])
    assert (owners.sum(1) == 10).all()
    assert (owners.sum(0) == 1).all()
    assert table.sum(1).unique().tolist() == [60, 66, 75, 85, 100]  # 600 images among 10, 9, 8, 7, 6 clients
    assert all(len(rows) == 20 for rows in partition.test)


def test_disjoint_on_ten_classes() -> None:
    pool = make_pool()
    partition = RECIPES["disjoint"](pool, clients=20, train=30)
    assert partition.groups is not None
    sizes = [partition.groups.count(group) for group in range(5)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]
    assert ((counts(pool, partition) > 0).sum(1) == 2).all()
    even = RECIPES["disjoint"](pool, clients=20, smallest=1.0, classes=1)
    assert even.groups == tuple(group for group in range(5) for _ in range(4))
    assert ((counts(pool, even) > 0).sum(1) == 1).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"groups": 11}, "11 x 0 different classes"),
        ({"groups": 21}, "groups=21, expected 1 to 20"),
        ({"classes": 3}, "5 x 3 different classes, the data has 10"),
        ({"smallest": 0.0}, "smallest=0.0"),
        ({"smallest": math.nan}, "smallest=nan"),
        ({"smallest": 0.01, "clients": 5}, "leaves group 4 of 5 without a client; use smallest=1"),
    ],
)
def test_disjoint_refusals_say_what_works(options: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        RECIPES["disjoint"](make_pool(), **options)
    RECIPES["disjoint"](make_pool(), smallest=1.0, clients=5)


def test_clusters_find_what_was_planted_whatever_the_labels_are() -> None:
    kind = torch.arange(3).repeat_interleave(torch.tensor([30, 20, 50]))[
        torch.randperm(100, generator=generator(0, "a"))
    ]
    looks = 20 * torch.randn(3, 1, 5, 6, generator=generator(0, "looks"))
    images = looks[kind] + torch.randn(100, 1, 5, 6, generator=generator(0, "noise"))
    for dimensions in (2, 4, 30, 256):  # through principal axes and without
        train, test = clusters(images[:80], images[80:], 3, dimensions, generator(1, "federation"))
        found = torch.cat([train, test])
        # The largest is 0, then 1, then 2; 50 of kind 2, 30 of kind 0, 20 of kind 1.
        assert torch.equal(found, torch.tensor([1, 2, 0])[kind])
    assert torch.equal(clusters(images, images[:1], 1, 4, generator(0, "x"))[0], torch.zeros(100, dtype=torch.long))


def test_clusters_refuse_what_cannot_be_found() -> None:
    same = torch.ones(20, 4)
    with pytest.raises(InputError, match="latent found 1 clusters in the images, expected groups=3"):
        clusters(same, same, 3, 256, generator(0, "x"))
    with pytest.raises(InputError, match="groups=41, expected 1 to 40"):
        clusters(same, same, 41, 256, generator(0, "x"))
    with pytest.raises(InputError, match="dimensions=0"):
        clusters(same, same, 1, 0, generator(0, "x"))


def test_clusters_leave_global_state_alone() -> None:
    import random
    import warnings

    import numpy as np

    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state(), list(warnings.filters))  # noqa: NPY002
    RECIPES["latent"](make_pool(), dimensions=3)
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])
    assert warnings.filters == before[3]


def test_latent_clients_train_and_are_tested_on_their_own_cluster() -> None:
    pool = make_pool()
    kinds = torch.arange(1000) % 4, torch.arange(200) % 4
    looks = 30 * torch.eye(4)
    pool = pool._replace(train_inputs=looks[kinds[0]], test_inputs=looks[kinds[1]])
    partition = RECIPES["latent"](pool, clients=8, groups=4, test=100)
    assert partition.groups == (0, 0, 1, 1, 2, 2, 3, 3)
    seen = []
    for client in range(8):
        own = {
            *kinds[0][partition.train[client]].tolist(),
            *kinds[0][partition.validation[client]].tolist(),
            *kinds[1][partition.test[client]].tolist(),
        }
        assert len(own) == 1
        seen += own
    assert seen[::2] == seen[1::2]
    assert sorted(seen[::2]) == [0, 1, 2, 3]
    assert sum(len(rows) for rows in partition.test[::2]) == 100
    lonely = pool._replace(test_inputs=looks[torch.arange(200) % 3])
    with pytest.raises(InputError, match="no held-out image of its cluster; raise test, lower groups"):
        RECIPES["latent"](lonely, clients=8, groups=4)


@pytest.mark.parametrize(
    ("groups", "kept"),
    [([0, 0, 1, 1, 2, 2], 0), ([0] * 5 + [1] * 5, 0), ([0, 1, 0, 2, 0, 3], 0), ([0] * 5 + [1] * 2, 3), ([0] * 4, 4)],
)
def test_exchange_keeps_as_few_as_can_be(groups: list[int], kept: int) -> None:
    """The largest group of m can give away at most K - m targets, so 2 m - K of its clients keep the group's."""
    found = set()
    for seed in range(30):
        target = exchange(groups, generator(seed, "exchange"))
        assert sorted(target) == list(range(len(groups)))
        assert all(target[i] != i for i in range(len(groups)))
        assert sum(groups[target[i]] == groups[i] for i in range(len(groups))) == kept
        found.add(tuple(target))
    assert len(found) > 5


def test_exchange_does_not_move_groups_as_a_whole() -> None:
    groups = [client // 4 for client in range(20)]
    target = exchange(groups, generator(0, "exchange"))
    assert max(len({groups[target[i]] for i in range(4 * g, 4 * g + 4)}) for g in range(5)) > 1


@pytest.mark.parametrize("base", ["latent", "groups"])
def test_shuffled_targets_are_another_clients_and_the_truth_is_who_trains_on_such_data(base: str) -> None:
    pool = make_pool()
    partition = RECIPES["shuffled-targets"](pool, clients=15, groups=5, base=base)
    pool = pool._replace(generator=generator(0, "federation"))
    made = RECIPES["latent"](pool, clients=15, groups=5) if base == "latent" else None
    assert partition.truth is not None
    assert partition.groups == tuple(client // 3 for client in range(15))
    table = counts(pool, partition._replace(validation=(torch.tensor([], dtype=torch.long),) * 15)) > 0
    for i in range(15):
        if made is not None:  # before the exchange, everyone had its own: training rows stay, targets moved
            assert torch.equal(partition.train[i], made.train[i])
            assert not torch.equal(partition.test[i], made.test[i])
            (giver,) = (j for j in range(15) if torch.equal(partition.validation[i], made.validation[j]))
            assert torch.equal(partition.test[i], made.test[giver])
        else:  # the group whose training classes are those of the target
            wanted = set(pool.test_labels[partition.test[i]].tolist())
            giver = next(j for j in range(15) if set(table[j].nonzero().flatten().tolist()) == wanted)
            assert {int(pool.train_labels[row]) for row in partition.validation[i]} <= wanted
        assert partition.groups[giver] != partition.groups[i]
        expected = [float(j != i and partition.groups[j] == partition.groups[giver]) for j in range(15)]
        assert partition.truth[i].tolist() == expected
    assert not torch.equal(partition.truth, partition.truth.T)


def test_shuffled_targets_needs_somebody_to_exchange_with() -> None:
    with pytest.raises(InputError, match="clients=1, expected at least 2"):
        RECIPES["shuffled-targets"](make_pool(), clients=1, groups=1)
    pair = RECIPES["shuffled-targets"](make_pool(), clients=2, groups=1)
    assert pair.truth is not None
    assert pair.truth.tolist() == [[0, 1], [1, 0]]


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


@pytest.mark.parametrize("flip", range(7))
def test_permuted_counts_the_ways_to_exchange_labels(flip: int) -> None:
    from itertools import permutations

    ways = sum(all(p[i] != i for i in range(flip)) for p in permutations(range(flip)))
    pool = make_pool(per_class=500, held_out=2)
    with pytest.raises(InputError, match=f"{flip} labels, there are {ways}; use flip="):
        RECIPES["permuted"](pool, clients=ways + 1, groups=ways + 1, flip=flip)
    if ways:
        RECIPES["permuted"](pool, clients=min(ways, 9), groups=min(ways, 9), flip=flip)


def test_permuted_with_more_classes_than_a_float_can_count_permutations_of() -> None:
    partition = RECIPES["permuted"](make_pool(per_class=3, classes=300, held_out=1), clients=4)
    assert partition.relabel is not None
    assert (partition.relabel != torch.arange(300)).all()


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


def test_the_truth_of_pathological_is_who_has_the_same_classes() -> None:
    federation = load_federation("pathological:digits:clients=40,classes=2,train=10", seed=1)
    sets = [frozenset(federation.classes(client).tolist()) for client in range(40)]
    same = [[float(i != j and sets[i] == sets[j]) for j in range(40)] for i in range(40)]
    assert federation.truth is not None
    assert federation.truth.tolist() == same
    assert federation.truth.any()
