"""Seats: which axes of a state's tensors are clients, read off the plates of the prior's program."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pyro import poutine
from torch import Tensor

from scool_ppl.infer.moments import latent_sites
from scool_ppl.infer.priors.base import GraphPrior
from scool_ppl.look.evidence import Evidence

Values = dict[str, Tensor]

Axes = tuple[int, ...]

ENDINGS = ("", "_logits", "_concentration", "_loc", "_scale")
"""What a guide appends to a site's name for its parameters."""


def site_axes(prior: GraphPrior, evidence: Evidence) -> dict[str, Axes]:
    """Leading axes of each site: (0,) in the plate of clients, (0, 1) for pairs, () for what all clients share."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        trace = poutine.block(poutine.trace(prior).get_trace)(evidence)
    found = {name: tuple(range(len(site["cond_indep_stack"]))) for name, site in latent_sites(trace)}
    return {**found, "Y": (0, 1)}


def parameter_axes(parameters: Iterable[str], sites: dict[str, Axes]) -> dict[str, Axes]:
    """The same for parameters of q, which bear their site's name."""
    known = {site.replace(".", "_") + ending: axes for site, axes in sites.items() for ending in ENDINGS}
    return {name: known[name] for name in parameters if name in known}


def learned_axes(prior: GraphPrior) -> dict[str, Axes]:
    """The `client_axes` of a prior by the names that its state has."""
    names = {name: name.removesuffix("_unconstrained") for name in prior.state_dict()}
    return {name: prior.client_axes[own] for name, own in names.items() if own in prior.client_axes}


def entries_of(away: Tensor, axes: Axes) -> Tensor:
    """Entries of a tensor with these axes of clients that are of someone in `away` (K,): (K,), (K, K) or (1, K)."""
    masks = [away.view(*(1,) * axis, -1, *(1,) * (max(axes) - axis)) for axis in axes]
    mask = masks[0]
    for other in masks[1:]:
        mask = mask | other
    return mask
