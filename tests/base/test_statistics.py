"""Means and deviations against the standard library: clients are a population, seeds a sample."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from torch import Tensor

from scool_ppl.base.statistics import Spread, mean_of_worst, over_clients, over_seeds


def shares(count: int) -> Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(count), dtype=torch.float64)


@pytest.mark.parametrize("count", [1, 2, 9, 100])
def test_clients_are_a_population(count: int) -> None:
    values = shares(count)
    found = over_clients(values)
    assert found.mean == pytest.approx(statistics.fmean(values.tolist()), abs=1e-15)
    assert found.std == pytest.approx(statistics.pstdev(values.tolist()), abs=1e-15)
    assert over_clients(values.flip(0)) == pytest.approx(found)


@pytest.mark.parametrize(
    ("count", "share", "worst"),
    [(1, 0.1, 1), (9, 0.1, 1), (10, 0.1, 1), (11, 0.1, 2), (30, 0.1, 3), (10, 0.2, 2), (11, 0.2, 3), (7, 1.0, 7)],
)
def test_the_worst_share_is_rounded_up_to_whole_clients(count: int, share: float, worst: int) -> None:
    values = shares(count)
    lowest = sorted(values.tolist())[:worst]
    assert mean_of_worst(values, share) == pytest.approx(statistics.fmean(lowest), abs=1e-15)


def test_what_is_not_finite_is_left_out() -> None:
    known, gaps = torch.tensor([0.5, 0.75, 0.25]), torch.tensor([0.5, torch.nan, 0.75, torch.inf, 0.25, -torch.inf])
    assert over_clients(gaps) == over_clients(known)
    assert mean_of_worst(gaps, 0.5) == mean_of_worst(known, 0.5) == 0.375
    assert over_seeds([0.5, math.nan, 0.75]) == over_seeds([0.5, 0.75])
    for nothing in (torch.tensor([]), torch.tensor([torch.nan])):
        assert all(math.isnan(value) for value in (*over_clients(nothing), mean_of_worst(nothing, 0.1)))
        assert all(math.isnan(value) for value in over_seeds(nothing.tolist()))


def test_single_precision_is_added_up_in_double() -> None:
    values = torch.full((100_000,), 0.1)
    assert over_clients(values).mean == pytest.approx(float(values[0]), abs=1e-14)


def test_the_values_are_left_alone() -> None:
    values = shares(7)
    mean_of_worst(values, 0.5)
    assert torch.equal(values, shares(7))


def test_seeds_are_a_sample() -> None:
    assert over_seeds([1.0, 2.0, 4.0]) == pytest.approx(Spread(7 / 3, math.sqrt(7 / 3)))
    assert over_seeds([1.0, 2.0, 4.0], population=True) == pytest.approx(Spread(7 / 3, math.sqrt(14) / 3))
    assert over_seeds([3.0]) == over_seeds([3.0], population=True) == Spread(3.0, 0.0)
