"""Recipes with groups: who owns which classes, labels and clusters, and what a true graph of them is."""

from __future__ import annotations

import math

import pytest
import torch

from scool_ppl.base.randomness import generator
from scool_ppl.data.recipes import RECIPES
from scool_ppl.errors import InputError
from tests.helpers.pools import counts, make_pool


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


def test_rotated_groups_share_all_but_their_angle() -> None:
    pool = make_pool()
    partition = RECIPES["rotated"](pool, clients=6, groups=3, train=50)
    assert partition.groups == (0, 0, 1, 1, 2, 2)
    assert partition.turned == (0, 0, 120, 120, 240, 240)
    assert partition.relabel is None
    assert partition.truth is None
    assert all(torch.equal(rows, torch.arange(200)) for rows in partition.test)
    # Without replacement from 100 of each of ten classes: everybody has nearly all of them.
    assert int((counts(pool, partition) > 0).sum(1).min()) >= 9
    quarters = RECIPES["rotated"](make_pool(), clients=8)
    assert quarters.turned == (0, 0, 90, 90, 180, 180, 270, 270)
    with pytest.raises(InputError, match="rotated has groups=9, expected 1 to 8"):
        RECIPES["rotated"](make_pool(), clients=8, groups=9)


@pytest.mark.parametrize("name", ["iid", "permuted", "rotated"])
def test_clients_with_few_and_with_many_images(name: str) -> None:
    pool = make_pool(per_class=300)
    table = counts(pool, RECIPES[name](pool, clients=20, sizes="10-500")).sum(1)
    assert 10 <= int(table.min()) < 30
    assert 200 < int(table.max()) <= 500
    assert torch.equal(table, counts(pool, RECIPES[name](make_pool(per_class=300), clients=20, sizes="10-500")).sum(1))
    with pytest.raises(InputError, match=f"{name} has train=30 and sizes=10-500"):
        RECIPES[name](pool, clients=20, sizes="10-500", train=30)


def test_ragged_and_sizes_exclude_each_other() -> None:
    with pytest.raises(InputError, match=r"ragged=0\.5 and sizes=10-20, expected one of them; leave ragged out"):
        RECIPES["permuted"](make_pool(), clients=20, sizes="10-20", ragged=0.5)


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


@pytest.mark.parametrize("name", ["groups", "permuted", "rotated", "latent", "shuffled-targets"])
def test_client_i_of_k_is_in_group_i_g_over_k(name: str) -> None:
    partition = RECIPES[name](make_pool(), clients=11, groups=4)
    assert partition.groups == tuple(math.floor(client * 4 / 11) for client in range(11))
