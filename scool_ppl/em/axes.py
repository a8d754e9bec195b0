"""Which axes of a state's tensors are clients: declared by whoever writes them, sites by the plates of the program."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from pyro import poutine
from torch import Tensor

from scool_ppl.base.randomness import seeded
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.moments import latent_sites
from scool_ppl.infer.priors.base import GraphPrior
from scool_ppl.look.evidence import Evidence

Axes = tuple[int, ...]

PLATES = ("clients", "receivers", "senders")
"""Those that a GraphPrior opens."""


class Layout(NamedTuple):
    """axes: which axes are clients, (0,), (0, 1) for pairs, or (). flat: what stands where nothing is known yet."""

    axes: Axes
    flat: float


def site_layouts(prior: GraphPrior, evidence: Evidence) -> dict[str, Layout]:
    """The layout of each site's moment: (0,) in the plate of clients, (0, 1) for pairs, () for what all clients share.

    Flat is the uniform distribution where the site's values are probabilities, else 0.
    """
    with torch.no_grad(), seeded(0):
        trace = poutine.block(poutine.trace(prior).get_trace)(evidence)
    found = {}
    for name, site in latent_sites(trace):
        shape = site["fn"].event_shape
        share = 1 / shape[-1] if shape and _is_simplex(site["fn"].support, shape[-1]) else 0.0
        found[name] = Layout(_axes(site), share)
    return {**found, "Y": Layout((0, 1), 0.0)}


def _axes(site: dict[str, Any]) -> Axes:
    """Which axes of a site are in plates of clients: not those of plates that a program opens itself, of images, say."""
    shape = site["fn"].batch_shape
    return tuple(sorted(len(shape) + frame.dim for frame in site["cond_indep_stack"] if frame.name in PLATES))


def _is_simplex(support: object, size: int) -> bool:
    """Are the values of this support the vertices or points of a simplex?"""
    vertex, outside = torch.eye(size)[0], torch.full((size,), 2.0 if size == 1 else 1.0)
    check = getattr(support, "check", None)
    return check is not None and bool(torch.as_tensor(check(vertex)).all()) and not bool(check(outside).all())


def parameter_layouts(prior: GraphPrior, evidence: Evidence) -> dict[str, Layout]:
    """The layout of each parameter of q; a graph that q is a point mass at is of pairs."""
    sites = site_layouts(prior, evidence)
    if type(prior).guide is not GraphPrior.guide:
        return {"Y": sites["Y"]}  # the parameters of a guide of its own are the prior's
    parameters = AutoMeanField(prior).parameters_by_site(evidence)
    return {"Y": sites["Y"], **{name: Layout(sites[site].axes, flat) for name, (site, flat) in parameters.items()}}


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
