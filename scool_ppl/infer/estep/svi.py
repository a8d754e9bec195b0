"""SVIStep: pyro.infer.SVI as an E-step, with any guide and any Pyro bound."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.infer import ELBO, SVI
from torch import Tensor

from scool_ppl.base.arguments import check_kind, whole
from scool_ppl.base.randomness import seeded
from scool_ppl.errors import InputError
from scool_ppl.infer.bound import MomentELBO
from scool_ppl.infer.estep.base import (
    Posterior,
    Values,
    looked_at,
    optimizer_settings,
    set_closed_form,
    starting_points,
)
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.moments import latent_sites, log_joint, moment, site_value
from scool_ppl.infer.priors.base import GraphPrior, Joint
from scool_ppl.infer.program import LocalModule, promoted
from scool_ppl.look.evidence import Evidence


def guide_of(prior: GraphPrior, joint: Joint) -> AutoMeanField | OwnGuide:
    """The guide of a prior: the one it writes, else the mean field of the joint program."""
    return AutoMeanField(joint) if type(prior).guide is GraphPrior.guide else OwnGuide(prior)


class OwnGuide(LocalModule):
    """A prior's own guide as a program that opens the prior's plates first."""

    def __init__(self, prior: GraphPrior) -> None:
        super().__init__()
        self._prior = (prior,)

    def forward(self, evidence: Evidence) -> Any:
        prior = self._prior[0]
        with prior.opened(evidence), prior._pyro_context, promoted():
            return prior.guide(evidence)


@dataclass(frozen=True)
class SVIStep:
    """`pyro.infer.SVI` on the prior's guide, by default with MomentELBO and Adam.

    Any Pyro ELBO and optimiser will do; a prior's own `guide` is used where it has one. Parameters that the prior
    solves in closed form are set every `refresh` steps, when the guide has moments.
    """

    steps: int = 200
    optim: pyro.optim.PyroOptim = field(default_factory=lambda: pyro.optim.Adam({"lr": 0.1}))
    elbo: ELBO = field(default_factory=MomentELBO)
    refresh: int = 10
    keep: float = 0.9
    num_samples: int = 100

    def __post_init__(self) -> None:
        if not whole(self.steps, self.refresh, self.num_samples) or not 0 < self.keep <= 1:
            raise InputError(
                f"SVIStep(steps={self.steps}, refresh={self.refresh}, num_samples={self.num_samples}, keep={self.keep}): "
                "expected at least one of each, and keep in (0, 1]"
            )
        check_kind("optim of SVIStep", self.optim, pyro.optim.PyroOptim, "e.g. pyro.optim.Adam({'lr': 0.1})")
        check_kind("elbo of SVIStep", self.elbo, ELBO, "e.g. MomentELBO()")

    def __call__(self, joint: Joint, evidence: Evidence, q: Values, generator: torch.Generator) -> Posterior:
        prior = joint.prior
        guide = guide_of(prior, joint)
        automatic = isinstance(guide, AutoMeanField)
        with pyro.settings.context(module_local_params=True), seeded(generator):
            if automatic:
                guide.setup(evidence)
                # A start's bound means little before the edges have been fitted to it, so the last one is taken.
                guide.load({**q, **starting_points(guide, joint, evidence, q, generator, self.keep)[-1]})
                if not guide.kinds and not any(True for _ in prior.parameters()):
                    set_closed_form(prior, {}, evidence)  # the graph is given: there is nothing else to infer
                    trace = log_joint(joint, {}, evidence)[1]
                    graph = looked_at(trace.nodes["_RETURN"]["value"], evidence)
                    return Posterior({}, {"Y": graph}, (float(trace.log_prob_sum()),))
            if not any(True for _ in [*guide.parameters(), *prior.parameters()]):
                raise InputError(
                    f"{type(prior).__name__} and its guide have no learnable parameter; SVI would do nothing"
                )
            with optimizer_settings():
                bounds = self.ascend(joint, guide, evidence)
            moments = self.moments(joint, guide, evidence)
        values = guide.values() if automatic else {}
        return Posterior(values, moments, tuple(bounds))

    def ascend(self, joint: Joint, guide: Any, evidence: Evidence) -> list[float]:
        """The steps of SVI; returns the bound after each."""
        elbo = copy.deepcopy(self.elbo)  # Pyro writes into both
        svi = SVI(joint, guide, copy.deepcopy(self.optim), elbo)
        bounds, last = [], self.steps - 1
        given = isinstance(guide, AutoMeanField) and "Y" not in guide.kinds
        for step in range(self.steps):
            bounds.append(-float(svi.step(evidence)))
            due = step == last if joint.prior.accumulates else step % self.refresh == self.refresh - 1
            if due:
                means = guide_moments(guide, evidence)
                if given or "Y" in means:
                    set_closed_form(joint.prior, means, evidence)
        with torch.no_grad():
            bounds.append(-float(elbo.loss(joint, guide, evidence)))
        return bounds

    def moments(self, joint: Joint, guide: Any, evidence: Evidence) -> Values:
        """E_q of the sites, and of Y through the model: averaged over draws where the guide has samples only."""
        with torch.no_grad():
            exact = isinstance(guide, AutoMeanField) and "normal" not in guide.kinds.values()
            draws = []
            for _ in range(1 if exact else self.num_samples):
                trace = poutine.trace(guide).get_trace(evidence)
                values = {name: site_value(site) for name, site in latent_sites(trace)}
                _, played = log_joint(joint, values, evidence)
                means = {name: mean_of(site) for name, site in latent_sites(trace)}
                draws.append({**means, "Y": looked_at(played.nodes["_RETURN"]["value"], evidence)})
            return {name: torch.stack([draw[name] for draw in draws]).mean(0) for name in draws[0]}


def mean_of(site: dict[str, Any]) -> Tensor:
    """E_q of a site: of a Dirichlet the mean, not the geometric mean that stands for it in the bound."""
    return site["fn"].mean if isinstance(site["fn"], dist.Dirichlet) else site_value(site)


def guide_moments(guide: Any, evidence: Evidence) -> Values:
    """The moments of the guide's sites that have one."""
    with torch.no_grad():
        trace = poutine.trace(guide).get_trace(evidence)
        means = {name: moment(site["fn"]) for name, site in latent_sites(trace)}
    return {name: mean for name, mean in means.items() if mean is not None}
