"""What recipes share: strata, equal shares, groups, exchanges, permutations of labels, and whole numbers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from scool_ppl.base.randomness import generator
from scool_ppl.data.recipes.splitting import (
    check_request,
    deal,
    equal_share,
    exchange,
    membership,
    mixed_rows,
    partitioned,
    relabellings,
    rounded,
    shares,
    stratified,
    unequal_shares,
)
from scool_ppl.errors import InputError
from tests.helpers.pools import make_pool


def test_stratified_keeps_label_shares_to_within_one() -> None:
    labels = torch.tensor([0] * 300 + [1] * 100 + [2] * 7)
    picked = stratified(labels, 60, generator(0, "test"))
    assert len(picked.unique()) == 60
    found = torch.bincount(labels[picked], minlength=3)
    assert ((found - 60 * torch.tensor([300, 100, 7]) / 407).abs() <= 1).all()
    assert len(stratified(labels, 0, generator(0, "test"))) == 0
    assert torch.equal(stratified(labels, 407, generator(0, "test")), torch.arange(407))


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


def test_rows_round_to_whole_numbers_with_their_sum_by_largest_remainder() -> None:
    amounts = torch.tensor([[1.5, 1.3, 0.2], [0.4, 0.3, 0.3], [2.0, 0.0, 1.0]], dtype=torch.float64)
    assert rounded(amounts).tolist() == [[2, 1, 0], [1, 0, 0], [2, 0, 1]]
    many = 7 * torch.rand(50, 9, generator=generator(0, "amounts"), dtype=torch.float64)
    many = many / many.sum(1, keepdim=True) * 100
    found = rounded(many)
    assert found.sum(1).tolist() == [100] * 50
    assert ((found - many).abs() < 1).all()


def test_images_are_dealt_as_counted_and_to_one_client_each() -> None:
    pool = make_pool()
    wanted = torch.randint(5, (12, 10), generator=generator(0, "wanted"))
    dealt = deal(pool, wanted)
    found = [torch.bincount(pool.train_labels[rows], minlength=10).tolist() for rows in dealt]
    assert found == wanted.tolist()
    owned = torch.cat(dealt)
    assert len(owned.unique()) == len(owned)


@pytest.mark.parametrize("clients", [1, 5, 7, 100])
@pytest.mark.parametrize("groups", [1, 3, 5])
def test_groups_are_neighbours_of_nearly_one_size(clients: int, groups: int) -> None:
    if groups > clients:
        with pytest.raises(
            InputError, match=rf"it has groups={groups}, expected 1 to {clients}, the number of clients"
        ):
            membership("it", clients, groups)
        return
    found = membership("it", clients, groups)
    assert list(found) == sorted(found)
    sizes = [found.count(group) for group in range(groups)]
    assert sum(sizes) == clients
    assert max(sizes) - min(sizes) <= 1


def test_an_equal_share_is_all_that_fits_or_what_was_asked() -> None:
    assert equal_share("it", 100, 7, None) == 14
    assert equal_share("it", 100, 7, 5) == 5
    with pytest.raises(
        InputError, match=r"it needs 7 x 15 = 105 images, the pool has 100; lower train \(train=14 fits\)"
    ):
        equal_share("it", 100, 7, 15)
    with pytest.raises(InputError, match="it needs 101 x 1 = 101 images, the pool has 100; lower clients"):
        equal_share("it", 100, 101, None)


@pytest.mark.parametrize(("low", "high"), [(10, 500), (1, 8), (7, 7)])
def test_unequal_shares_are_log_uniform(low: int, high: int) -> None:
    """log(size) is uniform: as many clients between 10 and 20 images as between 200 and 400."""
    pool = make_pool(per_class=30000, held_out=1)
    found = torch.tensor(unequal_shares("it", pool, 2000, f"{low}-{high}"))
    assert low <= int(found.min()) <= int(found.max()) <= high
    if high < 10:
        assert found.unique().tolist() == list(range(low, high + 1))
    for n in range(low, high):
        expected = math.log((n + 1) / low) / math.log((high + 1) / low)
        # Kolmogorov and Smirnov: the largest gap exceeds 1.95 / sqrt(2000) once in a thousand times.
        assert abs(float((found <= n).double().mean()) - expected) < 1.95 / 2000**0.5
    again, other = (unequal_shares("it", make_pool(seed=seed), 5, "1-50") for seed in (0, 1))
    assert again == unequal_shares("it", make_pool(), 5, "1-50")
    assert other != again


def test_shares_are_equal_or_drawn_and_nobody_has_anybodys_images() -> None:
    assert [len(rows) for rows in shares("it", make_pool(), 7, None, None)] == [142] * 7
    assert [len(rows) for rows in shares("it", make_pool(), 7, 5, None)] == [5] * 7
    dealt = shares("it", make_pool(), 7, None, "10-200")
    assert [len(rows) for rows in dealt] == unequal_shares("it", make_pool(), 7, "10-200")
    owned = torch.cat(dealt)
    assert len(owned.unique()) == len(owned)
    with pytest.raises(InputError, match="it has train=5 and sizes=1-9, expected one of them; leave train out"):
        shares("it", make_pool(), 7, 5, "1-9")


@pytest.mark.parametrize("sizes", ["", "10", "10-", "-5", "0-5", "9-3", "10-x", "1.5-3", "10-500-900", "1-9999999999"])
def test_sizes_that_are_no_range_are_refused(sizes: str) -> None:
    with pytest.raises(InputError, match=f"it has sizes={sizes}, expected the smallest and the largest, at least 1"):
        unequal_shares("it", make_pool(), 3, sizes)


def test_a_pool_that_is_too_small_for_the_sizes_says_which_fit() -> None:
    with pytest.raises(InputError, match=r"drew \d+ images in all, the pool has 1000; use sizes=10-\d+, or") as caught:
        unequal_shares("it", make_pool(), 20, "10-500")
    advice = int(str(caught.value).split("use sizes=10-")[1].split(",")[0])
    assert sum(unequal_shares("it", make_pool(), 20, f"10-{advice}")) <= 1000
    with pytest.raises(InputError, match="drew 1"):
        unequal_shares("it", make_pool(), 20, f"10-{advice + 1}")
    with pytest.raises(InputError, match="at least 20 x 60 = 1200 images, the pool has 1000; use sizes=1-50, or lower"):
        unequal_shares("it", make_pool(), 20, "60-70")
    with pytest.raises(InputError, match="it needs 1001 x 1 = 1001 images, the pool has 1000; lower clients"):
        unequal_shares("it", make_pool(), 1001, "1-2")


@pytest.mark.parametrize("flip", [2, 3, 5])
def test_permutations_differ_and_move_the_same_labels_only(flip: int) -> None:
    ways = sum(all(p[i] != i for i in range(flip)) for p in itertools.permutations(range(flip)))
    groups = min(ways, 6)
    found = relabellings(groups, 6, flip, generator(0, "labels"))
    assert len({tuple(row) for row in found.tolist()}) == groups
    assert torch.equal(found.sort(1).values, torch.arange(6).expand(groups, 6))
    moved = found != torch.arange(6)
    assert (moved == moved[0]).all()
    assert int(moved[0].sum()) == flip


def test_a_part_validates_and_clients_are_tested_on_their_classes() -> None:
    pool = make_pool()
    dealt = mixed_rows(pool)[:60].split([10, 50])
    partition = partitioned(pool, dealt, 0.2, None, classes_of=[(3,), (1, 4)])
    assert [len(rows) for rows in partition.validation] == [2, 10]
    for mine, train, validation in zip(dealt, partition.train, partition.validation, strict=True):
        assert torch.equal(torch.cat([train, validation]).sort().values, mine.sort().values)
    assert [pool.test_labels[rows].unique().tolist() for rows in partition.test] == [[3], [1, 4]]
    assert [len(rows) for rows in partition.test] == [20, 40]
    by_class = pool._replace(test_labels=pool.test_labels.sort().values)
    few = partitioned(by_class, dealt, 0.99, 50)
    assert [len(rows) for rows in few.train] == [1, 1], "a client keeps one image to train on"
    assert torch.bincount(by_class.test_labels[few.test[0]]).tolist() == [5] * 10, "held-out images are stratified"
    with pytest.raises(InputError, match="client 1 has no held-out image of its classes; raise test or classes"):
        partitioned(pool, dealt, 0.2, None, classes_of=[(3,), (11,)])


def test_clients_of_the_same_classes_share_one_list() -> None:
    pool = make_pool()
    partition = partitioned(pool, mixed_rows(pool)[:40].split(10), 0.0, None, classes_of=[(3,), (1,), (3,), (1,)])
    assert len({id(rows) for rows in partition.test}) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clients": 0}, "clients=0, expected at least 1"),
        ({"train": 0}, "train=0, expected at least 1 image per client"),
        ({"validation": 1.0}, "validation=1.0, expected a fraction from 0 to below 1"),
        ({"test": 201}, "test=201, expected 1 to 200"),
    ],
)
def test_what_no_recipe_can_use_is_refused(options: dict[str, Any], words: str) -> None:
    request = {"clients": 3, "train": None, "validation": 0.2, "test": None}
    check_request(make_pool(), **request)
    with pytest.raises(InputError, match=words):
        check_request(make_pool(), **{**request, **options})
