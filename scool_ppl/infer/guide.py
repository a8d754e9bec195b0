"""AutoMeanField, the automatic guide: a product of one factor per site, a Pyro guide like any other."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.nn import PyroParam
from pyro.ops.tensor_utils import periodic_repeat
from torch import Tensor
from torch.distributions import biject_to

from scool_ppl.base.randomness import seeded
from scool_ppl.errors import InputError
from scool_ppl.infer.distributions import NEVER, BlockBernoulli, OneHot
from scool_ppl.infer.moments import AnyProgram, factor, latent_sites
from scool_ppl.infer.program import LocalModule
from scool_ppl.look.likelihoods import HOPELESS


class AutoMeanField(LocalModule):
    """q = product over the model's sites: Bernoulli, one-hot, Dirichlet, or a diagonal normal for continuous ones.

    Plates, masks and scales are those of the model: a site that counts s times in log p counts s times in log q. Of a
    subsampled plate q has parameters for all, of which each run takes those that are drawn.

    A Pyro guide like any other: it can be traced, rendered, sampled and given to SVI. Parameters are created at the
    first call, from the model's own sites, and named `Y_logits`, `z_logits`, `pi_concentration`, `x_loc`, `x_scale`.
    """

    def __init__(self, model: AnyProgram) -> None:
        super().__init__()
        self._model = (model,)  # in a tuple, so that the model does not become a submodule
        self._frames: dict[str, list[Any]] = {}
        self._masks: dict[str, Any] = {}
        self._scales: dict[str, Any] = {}
        self._kinds: dict[str, str] = {}
        self._supports: dict[str, Any] = {}
        self._excluded: dict[str, Tensor] = {}
        self._signature: object = None

    @property
    def sites(self) -> tuple[str, ...]:
        """The latent sites of the model, in its order; empty before the first call."""
        return tuple(self._kinds)

    @property
    def kinds(self) -> dict[str, str]:
        """What each factor is: "bernoulli", "one-hot", "dirichlet" or "normal"."""
        return dict(self._kinds)

    def mask(self, name: str) -> Any:
        """The mask of a site, None where everything counts."""
        return self._masks[name]

    def scale(self, name: str) -> Any:
        """How often a site counts, by `poutine.scale`; what subsampled plates do comes on top."""
        return self._scales[name]

    def subsampled(self, name: str) -> list[str]:
        """The plates of a site that draw some of their members in each run."""
        return [frame.name for frame in self._frames[name] if frame.full_size not in (None, frame.size)]

    def parameter_name(self, name: str) -> str:
        """The name of the one parameter of a Bernoulli, one-hot or Dirichlet factor."""
        return name.replace(".", "_") + ("_concentration" if self._kinds[name] == "dirichlet" else "_logits")

    def parameters_by_site(self, *args: Any, **kwargs: Any) -> dict[str, tuple[str, float]]:
        """For each parameter its site, and the value at which it says nothing."""
        self.setup(*args, **kwargs)
        flat = {"normal": {"_loc": 0.0, "_scale": 0.1}, "dirichlet": {"_concentration": 1.0}}
        return {
            name.replace(".", "_") + ending: (name, value)
            for name, kind in self._kinds.items()
            for ending, value in flat.get(kind, {"_logits": 0.0}).items()
        }

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Read sites, plates, masks and scales off one run of the model; parameters that fit already are kept."""
        with torch.no_grad(), seeded(0):
            trace = poutine.block(poutine.trace(self._model[0]).get_trace)(*args, **kwargs)
        self._frames, self._masks, self._scales = {}, {}, {}
        self._supports, self._kinds, self._excluded = {}, {}, {}
        for name, site in latent_sites(trace):
            fn = site["fn"]
            if isinstance(fn, dist.Delta):
                continue
            self._frames[name] = sorted(site["cond_indep_stack"], key=lambda frame: frame.dim)
            self._masks[name] = site["mask"]
            self._scales[name] = site["scale"]
            value = site["value"]
            for frame in self._frames[name]:
                if frame.name in self.subsampled(name):
                    self._check_whole(name, frame, site["mask"])
                    self._scales[name] = self._scales[name] * frame.size / frame.full_size
                    value = periodic_repeat(value, frame.full_size, frame.dim - fn.event_dim).contiguous()
            self._create(name, fn, value)
        self._signature = args[0] if args else None

    def _check_whole(self, name: str, frame: Any, mask: Any) -> None:
        """Refuses a mask of which only those of one subsample are known."""
        if isinstance(mask, Tensor) and mask.dim() >= -frame.dim and mask.shape[frame.dim] > 1:
            raise InputError(
                f"site '{name}' is masked inside the subsampled plate '{frame.name}', the mask of whom is not drawn is not "
                "known; write `guide` yourself"
            )

    def _create(self, name: str, fn: Any, value: Tensor) -> None:
        while isinstance(fn, dist.MaskedDistribution | dist.Independent):
            fn = fn.base_dist
        zeros = torch.zeros_like(value)
        if isinstance(fn, dist.OneHotCategorical | dist.Categorical):
            raise InputError(
                f"site '{name}' is {type(fn).__name__}, whose log-density is not linear; use scool_ppl.OneHot"
            )
        if isinstance(fn, dist.Bernoulli | BlockBernoulli | OneHot):
            self._kinds[name] = "one-hot" if isinstance(fn, OneHot) else "bernoulli"
            self._parameter(self.parameter_name(name), zeros, dist.constraints.real, fn.event_dim)
            if "logits" in vars(fn) and self._kinds[name] == "one-hot" and not self.subsampled(name):
                self._excluded[name] = fn.logits <= HOPELESS
        elif isinstance(fn, dist.Dirichlet):
            self._kinds[name] = "dirichlet"
            self._parameter(self.parameter_name(name), zeros + 1, dist.constraints.softplus_positive, 1)
        elif fn.has_rsample:
            self._kinds[name] = "normal"
            self._supports[name] = fn.support
            prefix = name.replace(".", "_")
            start = biject_to(fn.support).inv(value)
            depth = start.dim() - self._depth(name)
            self._parameter(f"{prefix}_loc", start, dist.constraints.real, depth)
            self._parameter(f"{prefix}_scale", torch.full_like(start, 0.1), dist.constraints.softplus_positive, depth)
        else:
            raise InputError(f"site '{name}' is {type(fn).__name__}: no automatic guide fits; write `guide` yourself")

    def _depth(self, name: str) -> int:
        """How many dimensions the plates of a site take."""
        return -self._frames[name][0].dim if self._frames[name] else 0

    def _parameter(self, name: str, value: Tensor, constraint: Any, event_dim: int) -> None:
        current = getattr(self, name, None)
        if current is None or current.shape != value.shape:
            setattr(self, name, PyroParam(value.clone(), constraint=constraint, event_dim=event_dim))

    def distribution(self, name: str) -> Any:
        """The factor q(name), as a distribution."""
        if self._kinds[name] != "normal":
            parameter = getattr(self, self.parameter_name(name))
            if name in self._excluded:  # what the model never chooses, q must not choose either
                parameter = parameter.masked_fill(self._excluded[name], NEVER)
            return factor(self._kinds[name], parameter)
        prefix = name.replace(".", "_")
        normal = dist.Normal(getattr(self, f"{prefix}_loc"), getattr(self, f"{prefix}_scale"))
        if self._supports[name] is not dist.constraints.real:
            normal = dist.TransformedDistribution(normal, biject_to(self._supports[name]))
        return normal.to_event(len(normal.batch_shape) - self._depth(name))

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        if not self._kinds or (args and args[0] is not self._signature):
            self.setup(*args, **kwargs)
        frames = {frame.name: frame for stack in self._frames.values() for frame in stack}
        plates = {
            name: pyro.plate(name, frame.full_size or frame.size, subsample_size=frame.size, dim=frame.dim)
            for name, frame in sorted(frames.items())
        }
        values = {}
        for name, stack in self._frames.items():
            with ExitStack() as contexts:
                for frame in stack:
                    contexts.enter_context(plates[frame.name])
                if self._masks[name] is not None:
                    contexts.enter_context(poutine.mask(mask=self._masks[name]))
                contexts.enter_context(poutine.scale(scale=self._scales[name]))
                values[name] = pyro.sample(name, self.distribution(name))
        return values

    def values(self) -> dict[str, Tensor]:
        """The parameters of q as plain tensors, name -> constrained value: what a state keeps."""
        return {name: getattr(self, name).detach().clone() for name, _ in self.named_pyro_params()}

    def load(self, values: dict[str, Tensor]) -> None:
        """Set the parameters that fit by name and shape, to copies; the others keep their start."""
        for name, value in values.items():
            current = getattr(self, name, None)
            if current is not None and current.shape == value.shape:
                setattr(self, name, value.clone())  # an unconstrained one would be moved in place by the optimiser
