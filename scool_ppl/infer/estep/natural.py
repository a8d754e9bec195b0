"""NaturalGradient: coordinate ascent for any program that is linear in its moments, without derivations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from pyro.distributions.util import scale_and_mask
from torch import Tensor

from scool_ppl.base.arguments import finite, whole
from scool_ppl.errors import InputError
from scool_ppl.infer.distributions import NEVER
from scool_ppl.infer.estep.base import Posterior, Values, filled, optimizer_settings, set_closed_form, starting_points
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.moments import AnyProgram, expected_log, factor, log_joint, soft_values
from scool_ppl.infer.priors.base import GraphPrior, Joint
from scool_ppl.infer.program import Program
from scool_ppl.look.evidence import Evidence

PATIENCE = 5
"""Steps of the optimiser in a row that raise the bound by less than `tol`, after which `fit` ends."""


def _lbfgs(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(parameters, max_iter=5, line_search_fn="strong_wolfe")


@dataclass(frozen=True)
class NaturalGradient:
    """Coordinate ascent for any program that is linear in its moments, by autograd.

    For an exponential-family factor with moment m the optimum given the others has the natural parameter dH/dm:
    logits of w = dH/dw, logits of Omega = dH/dOmega, gamma - 1 = dH/dE[log pi]. Sites that do not interact with
    themselves are set exactly, all at once. Sites that do (memberships) go in `blocks` random groups of clients per
    sweep, and every move is halved until the bound does not fall.

    `step` < 1 damps; the sweeps end when no moment moves by more than `tol`; `keep` softens
    the warm start; `restarts` adds random starts, of which the highest bound wins; `optimizer` makes the optimiser for
    those parameters of the program that have no closed form, which takes `optimizer_steps` steps a round.

    Called, it is the E-step of a graph: one round, q given to the next. `fit` is for any other `Program`.
    """

    sweeps: int = 30
    step: float = 1.0
    tol: float = 1e-5
    blocks: int = 5
    keep: float = 0.9
    restarts: int = 0
    optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer] = _lbfgs
    optimizer_steps: int = 1

    def __post_init__(self) -> None:
        counts = whole(self.sweeps, self.blocks, self.optimizer_steps) and whole(self.restarts, least=0)
        if not counts or not 0 < self.step <= 1 or not 0 < self.keep <= 1 or not finite(self.tol):
            raise InputError(
                f"NaturalGradient(sweeps={self.sweeps}, step={self.step}, blocks={self.blocks}, keep={self.keep}, "
                f"restarts={self.restarts}, optimizer_steps={self.optimizer_steps}): expected at least one sweep, block "
                "and optimizer step, no fewer restarts than 0, step and keep in (0, 1], a finite tol"
            )

    def __call__(self, joint: Joint, evidence: Evidence, q: Values, generator: torch.Generator) -> Posterior:
        if type(joint.prior).guide is not GraphPrior.guide:
            raise InputError(
                f"{type(joint.prior).__name__} writes its own guide, NaturalGradient fits the automatic one; "
                "use SVIStep (--e-step svi)"
            )
        guide = discrete_guide(joint, evidence)
        starts = starting_points(guide, joint, evidence, q, generator, self.keep)
        best = self._highest(_Ascent(self, joint, joint.prior, guide, (evidence,), generator), starts)
        values = {name: soft_value(kind, best.q[guide.parameter_name(name)]) for name, kind in guide.kinds.items()}
        _, trace = log_joint(joint, values, evidence)
        return best._replace(moments={**best.moments, "Y": trace.nodes["_RETURN"]["value"].detach()})

    def fit(self, program: Program, *args: Any, generator: torch.Generator) -> Posterior:
        """The posterior of a program that is called with `args`; its parameters are learned, in place.

        After the first sweeps the optimiser takes at most `optimizer_steps` steps, and q is swept anew after each: what
        rises is max_q H. They end when several in a row raise the bound by less than `tol`.
        """
        guide = discrete_guide(program, *args)
        starts = [filled(guide, start, generator) for start in program.starts(*args, generator) or [{}]]
        return self._highest(_Ascent(self, program, program, guide, args, generator), starts, to_the_end=True)

    def _highest(self, ascent: _Ascent, starts: list[Values], to_the_end: bool = False) -> Posterior:
        """The result of the start that ends at the highest bound, and the program's parameters as they were there."""
        starts = starts + [filled(ascent.guide, {}, ascent.generator) for _ in range(self.restarts)]
        parameters = ascent.program.state()
        best: tuple[Posterior, Values] | None = None
        for start in starts:
            ascent.program.load_state_dict(parameters)
            with soft_values():
                posterior = ascent.run(start, to_the_end)
            if best is None or posterior.elbo > best[0].elbo:
                best = posterior, ascent.program.state()
        assert best is not None
        ascent.program.load_state_dict(best[1])
        return best[0]


def discrete_guide(model: AnyProgram, *args: Any) -> AutoMeanField:
    """The automatic guide, whose factors must be discrete or Dirichlet."""
    guide = AutoMeanField(model)
    guide.setup(*args)
    if "normal" in guide.kinds.values():
        name = next(site for site, kind in guide.kinds.items() if kind == "normal")
        raise InputError(f"site '{name}' is continuous, NaturalGradient needs discrete or Dirichlet sites; use SVIStep")
    return guide


def soft_value(kind: str, natural: Tensor) -> Tensor:
    """The value of a site at which the log joint equals its expectation under the factor with this parameter."""
    return expected_log(natural).exp() if kind == "dirichlet" else factor(kind, natural).mean


class _Ascent:
    """One run of coordinate ascent: the current factors, their bound and the gradient of the log joint.

    `joint` is what is scored, `program` is whose parameters are learned: of a graph's joint program its prior.
    """

    def __init__(
        self,
        settings: NaturalGradient,
        joint: AnyProgram,
        program: Program,
        guide: AutoMeanField,
        args: tuple[Any, ...],
        generator: torch.Generator,
    ) -> None:
        self.settings, self.joint, self.program, self.guide, self.args = settings, joint, program, guide, args
        self.generator, self.kinds = generator, guide.kinds

    def run(self, values: Values, to_the_end: bool) -> Posterior:
        self.natural = {name: values[self.guide.parameter_name(name)] for name in self.kinds}
        self.bound, self.gradients = self.evaluate(self.natural)
        self.interacting = {name for name in self.kinds if self.interacts(name)}
        bounds = [self.bound, *self.sweep()]
        bounds += self.raise_with_q() if to_the_end else self.raise_by_gradient()
        q = {self.guide.parameter_name(name): value for name, value in self.natural.items()}
        moments = {name: factor(self.kinds[name], value).mean for name, value in self.natural.items()}
        return Posterior(q, moments, tuple(bounds))

    def sweep(self) -> list[float]:
        """Move all sites in turn until none moves any more; the bound after each sweep."""
        bounds = []
        order = sorted(self.kinds, key=lambda name: name != "Y")
        for _ in range(self.settings.sweeps):
            before = self.moments()
            for name in order:
                for clients in self.groups(name) if name in self.interacting else [slice(None)]:
                    self.move(name, clients)
            self.raise_closed_form()
            bounds.append(self.bound)
            if self.moved(before) < self.settings.tol:
                break
        return bounds

    def moments(self) -> Values:
        """E[Y], E[z] and E[log pi] of the current factors."""
        return {name: self.moment(name, value) for name, value in self.natural.items()}

    def moved(self, before: Values) -> float:
        """How far the moments are from what they were, at most."""
        return max((float((m - before[name]).abs().max()) for name, m in self.moments().items()), default=0.0)

    def moment(self, name: str, natural: Tensor) -> Tensor:
        return expected_log(natural) if self.kinds[name] == "dirichlet" else factor(self.kinds[name], natural).mean

    def value(self, name: str, moment: Tensor) -> Tensor:
        return moment.exp() if self.kinds[name] == "dirichlet" else moment

    def evaluate(self, natural: Values) -> tuple[float, Values]:
        """The bound at these factors and d E_q[log p] / d moment for each of them."""
        leaves = {name: self.moment(name, value).detach().requires_grad_() for name, value in natural.items()}
        values = {name: self.value(name, leaf) for name, leaf in leaves.items()}
        total, _ = log_joint(self.joint, values, *self.args)
        bound = float(total.detach())
        for name, value in natural.items():
            entropy = factor(self.kinds[name], value).entropy()
            bound += float(scale_and_mask(entropy, mask=self.guide.mask(name)).sum())
        if not leaves:
            return bound, {}
        gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        return bound, {
            name: torch.zeros_like(leaf) if gradient is None else gradient
            for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
        }

    def interacts(self, name: str) -> bool:
        """Does the optimum of this site's factor for one client depend on its factor for another?"""
        natural = self.natural[name]
        other = torch.rand(natural.shape, generator=self.generator, dtype=natural.dtype) + 0.5
        _, moved = self.evaluate({**self.natural, name: other})
        here = self.gradients[name]
        return bool((moved[name] - here).abs().max() > 1e-9 * (1 + here.abs().max()))

    def groups(self, name: str) -> list[Tensor]:
        """A random partition of the clients into groups that move together."""
        num_clients = self.natural[name].shape[0]
        return list(torch.randperm(num_clients, generator=self.generator).chunk(min(self.settings.blocks, num_clients)))

    def move(self, name: str, clients: Any) -> None:
        """Move one site, for some clients, to its optimum; halve the step while the bound falls."""
        offset = 1.0 if self.kinds[name] == "dirichlet" else 0.0
        # The logarithm of a probability of 0 is as good as any very low number, and can be computed with.
        target = self.gradients[name][clients].clamp(min=NEVER) + offset
        here = self.natural[name]
        step = self.settings.step
        for _ in range(8):
            there = here.clone()
            there[clients] = (1 - step) * here[clients] + step * target
            natural = {**self.natural, name: there}
            bound, gradients = self.evaluate(natural)
            if self.accepts(bound):
                self.natural, self.bound, self.gradients = natural, bound, gradients
                return
            step /= 2

    def accepts(self, bound: float) -> bool:
        return bound >= self.bound - 1e-10 * (1 + abs(self.bound))

    def raise_closed_form(self) -> None:
        """Set the closed-form parameters to their optimum given the moments."""
        if set_closed_form(self.program, self.moments(), *self.args):
            self.bound, self.gradients = self.evaluate(self.natural)

    def free_parameters(self) -> list[Tensor]:
        """Those that have no closed form."""
        solved = set(self.program.closed_form(self.moments(), *self.args))
        return [
            parameter
            for name, parameter in self.program.named_parameters()
            if parameter.requires_grad and name.removesuffix("_unconstrained") not in solved
        ]

    def optimizer(self, free: list[Tensor]) -> tuple[torch.optim.Optimizer, Callable[[], Tensor]]:
        """The optimiser of these parameters, and what it lowers: -E_q[log p] at the q of the moment."""
        with optimizer_settings():
            optimizer = self.settings.optimizer(free)

        def closure() -> Tensor:
            optimizer.zero_grad()
            values = {name: soft_value(self.kinds[name], value) for name, value in self.natural.items()}
            loss = -log_joint(self.joint, values, *self.args)[0]
            loss.backward()
            return loss

        return optimizer, closure

    def raise_by_gradient(self) -> list[float]:
        """Raise the bound in the free parameters, at this q; undone if it falls."""
        free = self.free_parameters()
        if not free:
            return [self.bound]
        before = self.program.state()
        optimizer, closure = self.optimizer(free)
        for _ in range(self.settings.optimizer_steps):
            optimizer.step(closure)  # type: ignore[arg-type]
        optimizer.zero_grad()
        bound, gradients = self.evaluate(self.natural)
        if self.accepts(bound):
            self.bound, self.gradients = bound, gradients
        else:
            self.program.load_state_dict(before)
        return [self.bound]

    def raise_with_q(self) -> list[float]:
        """Raise max_q H in the free parameters; the bound after each step of the optimiser and the sweeps that follow it.

        A step is halved until the bound does not fall.
        """
        free = self.free_parameters()
        bounds: list[float] = []
        if not free:
            return bounds
        optimizer, closure = self.optimizer(free)
        still = 0
        while len(bounds) < self.settings.optimizer_steps and still < PATIENCE:
            here = [parameter.detach().clone() for parameter in free]
            before = self.natural, self.bound, self.gradients
            optimizer.step(closure)  # type: ignore[arg-type]
            there = [parameter.detach().clone() for parameter in free]
            for step in (*(0.5**number for number in range(8)), 0.0):
                self.natural, self.bound, self.gradients = before
                with torch.no_grad():
                    for parameter, start, end in zip(free, here, there, strict=True):
                        parameter.copy_(torch.lerp(start, end, step) if step else start)
                if step:
                    self.bound, self.gradients = self.evaluate(self.natural)
                    self.sweep()
                    if self.bound >= before[1]:
                        break
            bounds.append(self.bound)
            still = 0 if self.bound >= before[1] + self.settings.tol else still + 1
        optimizer.zero_grad()
        return bounds
