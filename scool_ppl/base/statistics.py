"""How numbers spread: over the clients of a run, and over the seeds of a comparison.

The clients of a federation are all there are, so their deviation is that of a population; seeds are a sample of many
that could have been drawn. Numbers that are not finite are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pstdev, stdev
from typing import NamedTuple

from torch import Tensor


class Spread(NamedTuple):
    """Mean and standard deviation, both NaN where there was no number."""

    mean: float
    std: float


def over_clients(values: Tensor) -> Spread:
    """Mean and population standard deviation of one number per client."""
    known = _known(values)
    if len(known) == 0:
        return Spread(math.nan, math.nan)
    return Spread(float(known.mean()), float(known.std(unbiased=False)))


def mean_of_worst(values: Tensor, share: float) -> float:
    """Mean over the lowest `share` of the clients, at least one of them."""
    known = _known(values)
    if len(known) == 0:
        return math.nan
    return float(known.sort().values[: max(1, math.ceil(share * len(known)))].mean())


def over_seeds(values: Sequence[float], *, population: bool = False) -> Spread:
    """Mean and sample standard deviation (0 for a single seed) of one number per seed.

    population: divide by the number of seeds, not by one less.
    """
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return Spread(math.nan, math.nan)
    if len(known) == 1:
        return Spread(float(known[0]), 0.0)
    return Spread(fmean(known), pstdev(known) if population else stdev(known))


def _known(values: Tensor) -> Tensor:
    return values[values.isfinite()].double()
