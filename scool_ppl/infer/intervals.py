"""How sure a weight is: the probability of an edge, over what q does not know beside the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyro
import torch
from pyro import poutine
from torch import Tensor

from scool_ppl.base.arguments import check_whole
from scool_ppl.base.randomness import seeded
from scool_ppl.infer.estep.base import Values
from scool_ppl.infer.estep.svi import guide_of
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.moments import latent_sites, log_joint
from scool_ppl.infer.priors.base import GraphPrior, Joint
from scool_ppl.look.evidence import Evidence


class Intervals(NamedTuple):
    """Where the probability of each edge lies, (K, M) each; low <= w <= high."""

    low: Tensor
    high: Tensor


def intervals(
    prior: GraphPrior, q: Values, weights: Tensor, evidence: Evidence, generator: torch.Generator, draws: int = 39
) -> Intervals | None:
    """The least and the greatest of `draws` draws of p_ij = P(Y_ij = 1 | Z, D), Z ~ q(Z), for each edge.

        logit p_ij(Z) = logit w_ij + l_ij(Z) - mean_s l_ij(Z_s),    l_ij(Z) = d log P(Y, Z) / d Y_ij

    Z are the prior's other sites (memberships, places, ...) and w = E_q[Y], (K, M); of one-hot rows p is a softmax. One
    more draw is inside with probability (draws - 1) / (draws + 1): 95 % for 39. None where q knows no more than the
    weights: a point mass at the graph, no sites beside it, or a prior that reads the evidence of a round gone by.
    """
    check_whole("draws", draws, least=2)
    if prior.kind == "point" or prior.needs:
        return None
    with torch.no_grad(), seeded(generator), pyro.settings.context(module_local_params=True):
        sites = list(_draws(prior, q, evidence, draws))
    if not sites:
        return None
    weights, odds = weights.double().clamp(0, 1), (lambda site: _log_odds(prior, site, weights, evidence))
    least = most = total = odds(sites[0])
    for site in sites[1:]:
        one = odds(site)
        least, most, total = torch.minimum(least, one), torch.maximum(most, one), total + one
    mean = total / draws
    if prior.kind == "edges":  # p rises with l: the ends are where those of l are
        low, high = ((weights.logit() + end - mean).sigmoid() for end in (least, most))
        return Intervals(torch.minimum(low, weights), torch.maximum(high, weights))  # but for rounding they are so
    low = high = weights
    for site in sites:
        p = (weights.log() + odds(site) - mean).softmax(-1)
        low, high = torch.minimum(low, p), torch.maximum(high, p)
    return Intervals(low, high)


def _draws(prior: GraphPrior, q: Values, evidence: Evidence, draws: int) -> Iterator[Values]:
    """Draws of all sites but Y; none where q has Y alone, or not as a site."""
    joint = Joint(prior, torch.zeros(evidence.peers.mask.shape, dtype=torch.float64))
    guide = guide_of(prior, joint)
    if isinstance(guide, AutoMeanField):
        guide.setup(evidence)
        guide.load(q)
    for _ in range(draws):
        trace = poutine.block(poutine.trace(guide).get_trace)(evidence)
        found = {name: site["value"].detach() for name, site in latent_sites(trace)}
        if found.pop("Y", None) is None or not found:
            return
        yield found


def _log_odds(prior: GraphPrior, sites: Values, weights: Tensor, evidence: Evidence) -> Tensor:
    """What the prior says of each edge given the other sites: the derivative of its log density, which is linear in Y."""
    with torch.enable_grad():
        leaf = weights.detach().clone().requires_grad_()
        value, _ = log_joint(prior, {**sites, "Y": leaf}, evidence)
        (found,) = torch.autograd.grad(value, leaf)
    return found
