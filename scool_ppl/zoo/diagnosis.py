"""What is wrong with a program of which one knows that something is: which site, and which of its terms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.infer.distributions import OneHot
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.moments import AnyProgram, latent_sites, log_joint, site_value
from scool_ppl.look.evidence import Evidence

Values = dict[str, Tensor]
TRIED = 4
"""Variables of a site at which it is looked whether a density is linear in them."""


def kind_of(fn: Any) -> Any:
    """The distribution itself, without masks and event dimensions."""
    while isinstance(fn, dist.MaskedDistribution | dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    return fn


def term(site: dict[str, Any]) -> str:
    """ "site 'Y' (Bernoulli)", or "the factor 'evidence'"."""
    fn = kind_of(site["fn"])
    return (
        f"the factor '{site['name']}'" if isinstance(fn, dist.Unit) else f"site '{site['name']}' ({type(fn).__name__})"
    )


def terms(trace: poutine.Trace) -> Iterator[dict[str, Any]]:
    """Everything that adds to the log-density, with its sum."""
    for site in trace.nodes.values():
        if site["type"] == "sample" and not site_is_subsample(site):
            yield site


def check_repeats(program: AnyProgram, evidence: Evidence) -> None:
    """Raises InputError unless the program is the same whenever it is run, but for what its sites draw."""
    one, other = (_run(program, evidence, seed=0) for _ in range(2))
    for site in terms(one):
        again = other.nodes.get(site["name"])
        if again is None or not torch.equal(site["value"], again["value"]) or _differ(site, again):
            raise InputError(
                f"{term(site)} differs between two runs with the same torch seed, expected the same program; it draws "
                "from numpy's or Python's random numbers: draw them once in __init__, or from torch"
            )
    values = {name: site["value"] for name, site in latent_sites(one)}
    for site in terms(_run(program, evidence, seed=1, values=values)):
        if _differ(site, one.nodes[site["name"]]):
            raise InputError(
                f"{term(site)} has another density in every run, at the same values; `model` makes random numbers that "
                "are no sites: make them once in __init__, or sample them by pyro.sample"
            )


def _run(program: AnyProgram, evidence: Evidence, seed: int, values: Values | None = None) -> poutine.Trace:
    torch.default_generator.manual_seed(seed)
    with torch.no_grad():
        if values is not None:
            return log_joint(program, values, evidence)[1]
        trace = poutine.trace(program).get_trace(evidence)
        trace.compute_log_prob()
        return trace


def _sum(site: dict[str, Any]) -> float:
    return float(site["log_prob_sum"])


def _differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return not torch.equal(one["log_prob_sum"].nan_to_num(), other["log_prob_sum"].nan_to_num())


def infinite(joint: AnyProgram, guide: AnyProgram, evidence: Evidence) -> str | None:
    """The first term that is no finite number where q is, in words; None if all are."""
    with torch.no_grad():
        values = {name: site_value(site) for name, site in latent_sites(poutine.trace(guide).get_trace(evidence))}
        for site in terms(log_joint(joint, values, evidence)[1]):
            if not torch.isfinite(site["log_prob_sum"]):
                return f"{term(site)} has the log-density {_sum(site):.4g}"
    return None


def not_linear(joint: AnyProgram, guide: AutoMeanField, evidence: Evidence) -> str:
    """Which terms are not linear in which site, in words; "" if all are.

    A term f is linear in a variable if f((a + b) / 2) = (f(a) + f(b)) / 2, the others at their moments; of a Dirichlet's
    sample it is the logarithm.
    """
    with torch.no_grad():
        values = {name: site_value(site) for name, site in latent_sites(poutine.trace(guide).get_trace(evidence))}
        found: dict[tuple[str, str], None] = {}
        for name in [name for name, kind in guide.kinds.items() if kind != "normal"]:
            for ends in _variables(guide, name, values[name]):
                traces = [log_joint(joint, {**values, name: value}, evidence)[1] for value in ends]
                for low, high, middle in zip(*map(terms, traces), strict=True):
                    mean, here = (_sum(low) + _sum(high)) / 2, _sum(middle)
                    if not abs(here - mean) <= 1e-6 * (1 + abs(here)):
                        found[term(middle), name] = None
    return ", ".join(f"{what} is not linear in '{name}'" for what, name in found)


def _variables(guide: AutoMeanField, name: str, value: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For some variables of a site: two values of the site in which only this one differs, and their middle."""
    kind, mask = guide.kinds[name], guide.mask(name)
    shape = value.shape if kind == "bernoulli" else value.shape[:-1]
    there = torch.ones(shape, dtype=torch.bool) if mask is None else torch.as_tensor(mask).expand(shape)
    for place in map(tuple, there.nonzero()[:TRIED].tolist()):
        low, high = value.clone(), value.clone()
        if kind == "bernoulli":
            low[place], high[place] = 0.0, 1.0
        else:
            low[place], high[place] = value[place].roll(1), value[place] * 0.5 + value[place].flip(0) * 0.5
        middle = (low.log() / 2 + high.log() / 2).exp() if kind == "dirichlet" else (low + high) / 2
        yield low, high, middle


def one_hot_edges(trace: poutine.Trace, kind: str) -> None:
    """Raises InputError where each receiver chooses one sender, in a prior that does not say so."""
    if kind == "edges" and isinstance(kind_of(trace.nodes["Y"]["fn"]), OneHot):
        raise InputError(
            "'Y' is one-hot, each receiver chooses one sender, in a prior of kind 'edges'; set kind = \"rows\" in the "
            "class, and sample 'Y' inside `with self.clients:` from OneHot(logits=self.row_logits(logits))"
        )
