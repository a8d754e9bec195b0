"""The bound by brute force: every configuration of the discrete sites, for a handful of clients. The truth for tests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from pyro.distributions.util import scale_and_mask
from torch import Tensor

from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.moments import log_joint, moment
from scool_ppl.infer.priors.base import Joint
from scool_ppl.look.evidence import Evidence


class Choice(NamedTuple):
    """One value of one independent factor of q: site[place] = value, with its log-probability and how often it counts."""

    site: str
    place: tuple[int, ...]
    value: Tensor
    log_q: float
    counts: float


def factors(guide: AutoMeanField) -> list[list[Choice]]:
    """The choices of every discrete factor of q that is not masked: an edge has two, a one-hot row as many as columns."""
    found = []
    for site, kind in guide.kinds.items():
        if kind == "dirichlet":
            continue
        mean = guide.distribution(site).mean.detach()
        shape = mean.shape[:-1] if kind == "one-hot" else mean.shape
        mask = guide.mask(site)
        counts = torch.as_tensor(guide.scale(site)).expand(shape)
        places = torch.ones(shape, dtype=torch.bool) if mask is None else torch.as_tensor(mask).expand(shape)
        for place in map(tuple, places.nonzero().tolist()):
            values = torch.eye(mean.shape[-1]).to(mean) if kind == "one-hot" else mean.new_tensor([0.0, 1.0])
            weights = mean[place] if kind == "one-hot" else torch.stack([1 - mean[place], mean[place]])
            choices = zip(values, weights.tolist(), strict=True)
            often = float(counts[place])
            found.append(
                [Choice(site, place, value, math.log(weight), often) for value, weight in choices if weight > 0]
            )
    return found


def enumerated_bound(joint: Joint, guide: AutoMeanField, evidence: Evidence) -> float:
    """sum_x q(x) [log p(x) - log q(x)] over all x, scaled sites as often as they count in both; Dirichlet sites, linear
    in E[log pi], in closed form.
    """
    means: dict[str, Tensor] = {}
    total = 0.0
    for site, kind in guide.kinds.items():
        fn = guide.distribution(site)
        mean = moment(fn)
        means[site] = torch.zeros(()) if mean is None else mean.detach()
        if kind == "dirichlet":
            total += float(scale_and_mask(fn.entropy(), guide.scale(site), guide.mask(site)).sum().detach())
    for choices, log_p in _configurations(joint, guide, evidence, means):
        log_q = sum(choice.log_q for choice in choices)
        total += math.exp(log_q) * (log_p - sum(choice.counts * choice.log_q for choice in choices))
    return total


def enumerated_mode(joint: Joint, guide: AutoMeanField, evidence: Evidence) -> float:
    """max_x log p(x) over all x of discrete sites."""
    means = {site: guide.distribution(site).mean.detach() for site in guide.kinds}
    return max(log_p for _, log_p in _configurations(joint, guide, evidence, means))


def _configurations(
    joint: Joint, guide: AutoMeanField, evidence: Evidence, means: dict[str, Tensor]
) -> Iterator[tuple[tuple[Choice, ...], float]]:
    """Every configuration x and log p(x); the other sites are at their means."""
    with torch.no_grad():
        for configuration in itertools.product(*factors(guide)):
            values = {site: mean.clone() for site, mean in means.items()}
            for site, place, value, *_ in configuration:
                values[site][place] = value
            yield configuration, float(log_joint(joint, values, evidence)[0])
