"""One network for a client: the paired test by loops, and what it is for."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from torch import Tensor

from scool_ppl import InputError
from scool_ppl.deploy import single
from scool_ppl.deploy.single import lower_bounds
from tests.helpers.small import normal


def first(counts: list[int], most: int | None = None) -> Tensor:
    """The mask of clients with these numbers of images."""
    return torch.arange(max(counts) if most is None else most) < torch.tensor(counts)[:, None]


def by_loops(differences: list[list[float]], errors: float) -> list[float]:
    """The lower bounds of one candidate; at least two clients, the first two of whom have images."""
    sizes = [len(d) for d in differences if d]
    means = [statistics.fmean(d) for d in differences if d]
    images = sum(sizes)
    within = sum((x - statistics.fmean(d)) ** 2 for d in differences if d for x in d) / (images - len(means))
    grand = sum(n * mean for n, mean in zip(sizes, means, strict=True)) / images
    scatter = sum(n * (mean - grand) ** 2 for n, mean in zip(sizes, means, strict=True))
    between = max(0.0, (scatter - (len(means) - 1) * within) / (images - sum(n * n for n in sizes) / images))
    precisions = [1 / (between + within / n) for n in sizes]
    variance = 1 / sum(precisions)
    mu = variance * sum(p * mean for p, mean in zip(precisions, means, strict=True))
    found = []
    for d in differences:
        share = between / (between + within / len(d)) if d and between else 0.0
        gain = share * statistics.fmean(d) + (1 - share) * mu if d else mu
        found.append(gain - errors * math.sqrt((1 - share) * between + (1 - share) ** 2 * variance))
    return found


@pytest.mark.parametrize("differ", [0.0, 2.0])
def test_the_lower_bounds_are_those_of_loops(differ: float) -> None:
    counts = [7, 4, 1, 0]
    mask = first(counts)
    differences = normal(4, 3, 7) + differ * normal(4, 3, 1, seed=1)
    found = lower_bounds(torch.where(mask[:, None], differences, 0.0), mask, 1.5)
    for c in range(3):
        expected = by_loops([differences[i, c, :n].tolist() for i, n in enumerate(counts)], 1.5)
        assert found[:, c].tolist() == pytest.approx(expected, abs=1e-12)


def test_each_takes_what_is_better_for_it_and_local_where_nothing_is() -> None:
    log_p = 0.1 * normal(3, 3, 40) - 1
    log_p[0, 1] += 1
    log_p[1, 2] += 1
    log_p[2, 1:] -= 1
    mask = first([40, 40, 40])
    assert single(log_p, mask).tolist() == [1, 2, 0]
    order = torch.tensor([2, 0, 1])  # the candidates in another order: local is the second
    assert order[single(log_p[:, order], mask, local=1)].tolist() == [1, 2, 0]


def test_a_gain_within_the_error_is_no_gain() -> None:
    differences = torch.tensor([1.0, -0.8] * 10).double()
    log_p = torch.stack([torch.zeros(20).double(), differences])[None]
    mean, error = 0.1, float(differences.var().sqrt()) / 20**0.5
    assert mean < error
    assert single(log_p, first([20])).tolist() == [0]
    assert single(log_p, first([20]), errors=0.9 * mean / error).tolist() == [1]


def test_a_client_with_few_images_follows_the_others() -> None:
    log_p = 0.5 * normal(6, 2, 30) - 2
    log_p[:, 1] += 1
    log_p[5, :, 0] = torch.tensor([-1.0, -1.3])  # its only image says otherwise
    assert single(log_p, first([30, 30, 30, 30, 0, 1])).tolist() == [1] * 6


@pytest.mark.parametrize("counts", [[0], [1], [1, 1, 0], [0, 0]])
def test_where_nothing_is_known_it_is_local(counts: list[int]) -> None:
    log_p = torch.zeros(len(counts), 2, 1)
    log_p[:, 1] = 5.0
    assert single(log_p, first(counts, most=1)).tolist() == [0] * len(counts)


def test_one_candidate_and_one_that_is_the_local_network_again() -> None:
    assert single(normal(2, 1, 5), first([5, 5])).tolist() == [0, 0]
    assert single(normal(2, 1, 5).expand(2, 3, 5), first([5, 3]), local=1).tolist() == [1, 1]


def test_masked_images_count_nothing() -> None:
    log_p, mask = normal(3, 4, 9), first([9, 5, 2])
    other = torch.where(mask[:, None], log_p, torch.nan)
    assert torch.equal(single(log_p, mask), single(other, mask))


@pytest.mark.parametrize("options", [{"local": 2}, {"local": -1}, {"errors": -1.0}, {"errors": math.nan}])
def test_arguments_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected one of the 2 candidates"):
        single(normal(1, 2, 3), first([3]), **options)  # type: ignore[arg-type]
