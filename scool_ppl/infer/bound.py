"""MomentELBO, the exact bound of models that are linear in their moments."""

from __future__ import annotations

from typing import Any

import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.distributions.util import scale_and_mask
from pyro.infer import ELBO
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.infer.moments import AnyProgram, drawn_members, latent_sites, log_joint, moment, site_value


class MomentELBO(ELBO):
    """The exact evidence lower bound H = E_q[log p] - E_q[log q] of models that are linear in their moments.

    Runs the guide, replaces each discrete or Dirichlet sample by its moment, scores the model at those values and adds
    the entropies under the sites' masks and scales. Continuous sites keep their reparameterised sample: exact in Y
    given x, unbiased in x. No sampling of discrete sites and no enumeration. `loss` is -H, as in every Pyro ELBO.
    """

    def bound(self, model: AnyProgram, guide: AnyProgram, *args: Any, **kwargs: Any) -> Tensor:
        """H, differentiable in the parameters of model and guide; averaged over `num_particles` runs."""
        total = sum(self._particle(model, guide, *args, **kwargs) for _ in range(self.num_particles))
        return torch.as_tensor(total / self.num_particles)

    def _particle(self, model: AnyProgram, guide: AnyProgram, *args: Any, **kwargs: Any) -> Tensor:
        model_trace, guide_trace = self._get_trace(model, guide, args, kwargs)
        entropy = torch.zeros(())
        for name, site in latent_sites(guide_trace):
            fn = site["fn"]
            if isinstance(fn, dist.Delta):
                continue
            if moment(fn) is None and not fn.has_rsample:
                raise InputError(f"site '{name}' of the guide is {type(fn).__name__}: no moment and no rsample")
            term = -fn.log_prob(site["value"]) if moment(fn) is None else fn.entropy()
            entropy = entropy + scale_and_mask(term, scale=site["scale"], mask=site["mask"]).sum()
        return model_trace.log_prob_sum() + entropy

    def _get_trace(
        self, model: AnyProgram, guide: AnyProgram, args: Any, kwargs: Any
    ) -> tuple[poutine.Trace, poutine.Trace]:
        """The guide's run, and the model's run at the guide's moments (samples where there is no moment)."""
        guide_trace = poutine.trace(guide).get_trace(*args, **kwargs)
        values = {name: site_value(site) for name, site in latent_sites(guide_trace)}
        return log_joint(model, values | drawn_members(guide_trace), *args, **kwargs)[1], guide_trace

    def differentiable_loss(self, model: AnyProgram, guide: AnyProgram, *args: Any, **kwargs: Any) -> Tensor:
        return -self.bound(model, guide, *args, **kwargs)

    def loss(self, model: AnyProgram, guide: AnyProgram, *args: Any, **kwargs: Any) -> float:
        with torch.no_grad():
            return -float(self.bound(model, guide, *args, **kwargs))

    def loss_and_grads(self, model: AnyProgram, guide: AnyProgram, *args: Any, **kwargs: Any) -> float:
        loss = self.differentiable_loss(model, guide, *args, **kwargs)
        if loss.requires_grad:
            loss.backward()
        return float(loss.detach())
