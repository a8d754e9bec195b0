"""Moments: values at which a linear log-density equals its expectation, and the log joint at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import singledispatch
from typing import Any

import pyro
import pyro.distributions as dist
from pyro import poutine
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.infer.distributions import BlockBernoulli, OneHot, softplus

AnyProgram = Callable[..., Any]
"""A Pyro program: whatever samples when it is called."""


@singledispatch
def moment(fn: Any) -> Tensor | None:
    """The value at which a linear log-density equals its expectation under `fn`; None where only a sample will do."""
    return None


@moment.register(dist.Bernoulli)
@moment.register(OneHot)
@moment.register(BlockBernoulli)
@moment.register(dist.OneHotCategorical)
def _mean(fn: Any) -> Tensor:
    return fn.mean


@moment.register(dist.Dirichlet)
def _geometric_mean(fn: Any) -> Tensor:
    """exp(E[log pi]), not renormalised, so that its logarithm is E[log pi]."""
    return expected_log(fn.concentration).exp()


@moment.register(dist.Independent)
@moment.register(dist.MaskedDistribution)
def _of_base(fn: Any) -> Tensor | None:
    return moment(fn.base_dist)


def expected_log(concentration: Tensor) -> Tensor:
    """E[log pi] under Dirichlet(concentration): psi(gamma_g) - psi(sum_h gamma_h)."""
    return concentration.digamma() - concentration.sum(-1, keepdim=True).digamma()


def factor(kind: str, parameter: Tensor) -> Any:
    """The exponential-family factor of a site from its parameter: logits, or the concentration of a Dirichlet."""
    if kind == "dirichlet":
        return dist.Dirichlet(parameter)
    return OneHot(logits=parameter) if kind == "one-hot" else dist.Bernoulli(logits=parameter)


def latent_sites(trace: poutine.Trace) -> Iterator[tuple[str, dict[str, Any]]]:
    """The unobserved sample sites of a trace, in order, without plates."""
    for name, site in trace.iter_stochastic_nodes():
        if not site_is_subsample(site) and not site["infer"].get("is_auxiliary"):
            yield name, site


def drawn_members(trace: poutine.Trace) -> dict[str, Tensor]:
    """Whom the subsampled plates of a trace have drawn, by plate."""
    return {
        name: site["value"]
        for name, site in trace.nodes.items()
        if site["type"] == "sample" and site_is_subsample(site) and len(site["value"]) < site["fn"].size
    }


def site_value(site: dict[str, Any]) -> Tensor:
    """What a guide's site contributes to the model: its moment, else its sample."""
    mean = moment(site["fn"])
    return site["value"] if mean is None else mean


def expected(kind: str, parameter: Tensor) -> Tensor:
    """What a program is linear in: E[Y], E[z] of a factor with these logits, E[log pi] of one with this concentration."""
    if kind == "dirichlet":
        return expected_log(parameter)
    return parameter.log_softmax(-1).exp() if kind == "one-hot" else parameter.sigmoid()


def values_at(kinds: Mapping[str, str], moments: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Moments as values of the sites: of a Dirichlet it is those of log pi that are kept."""
    return {name: moment.exp() if kinds[name] == "dirichlet" else moment for name, moment in moments.items()}


def expected_with_entropy(kind: str, parameter: Tensor) -> tuple[Tensor, Tensor]:
    """Both `expected` and `entropy` of a factor."""
    if kind == "one-hot":
        logarithm = parameter.log_softmax(-1)
        moment = logarithm.exp()
        return moment, (logarithm * moment).sum(-1).neg_()
    moment = expected(kind, parameter)
    return moment, entropy(kind, parameter, moment)


def entropy(kind: str, parameter: Tensor, moment: Tensor) -> Tensor:
    """The entropy of a factor, for each of its variables; `moment` is `expected` of the same."""
    if kind == "bernoulli":
        return softplus(parameter).addcmul_(parameter, moment, value=-1)
    if kind == "one-hot":
        return (parameter.log_softmax(-1) * moment).sum(-1).neg_()
    return dist.Dirichlet(parameter).entropy()


@contextmanager
def soft_values() -> Iterator[None]:
    """Lets stock distributions score moments, which need not lie in their support, e.g. 0.3 for a Bernoulli."""
    with pyro.validation_enabled(False):
        yield


def log_joint(model: AnyProgram, values: dict[str, Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, poutine.Trace]:
    """log p(values), the log joint with every latent of `model` set to `values`, and the trace it came from."""
    with soft_values():
        trace = poutine.trace(poutine.condition(model, data=values)).get_trace(*args, **kwargs)
        for name, site in trace.nodes.items():
            if site["type"] != "sample" or site_is_subsample(site):
                continue
            if isinstance(site["fn"], dist.OneHotCategorical | dist.Categorical):
                raise InputError(
                    f"site '{name}' is {type(site['fn']).__name__}, whose log-density is not linear in soft values; "
                    "use scool_ppl.OneHot"
                )
            if not site["is_observed"] and not isinstance(site["fn"], dist.Delta):
                raise InputError(f"site '{name}' of the model is missing in the guide; sample it there too")
        return trace.log_prob_sum(), trace
