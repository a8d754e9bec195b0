"""NaturalGradient: coordinate ascent for any program that is linear in its moments, without derivations."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from scool_ppl.base.arguments import finite, whole
from scool_ppl.errors import InputError
from scool_ppl.infer.compiled import Compiled, UnsupportedError, check_derivatives, check_same
from scool_ppl.infer.distributions import NEVER
from scool_ppl.infer.estep.base import (
    Posterior,
    Values,
    filled,
    looked_at,
    optimizer_settings,
    set_closed_form,
    starting_points,
)
from scool_ppl.infer.expectation import Expectation, Interpreted
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.moments import (
    AnyProgram,
    entropy,
    expected,
    expected_with_entropy,
    factor,
    log_joint,
    soft_values,
)
from scool_ppl.infer.priors.base import GraphPrior, Joint
from scool_ppl.infer.program import Program, promoted
from scool_ppl.look.evidence import Evidence

_COMPARED: set[object] = set()
"""Programs, by class, sites and parameters, whose compiled derivatives were found to be those of autograd."""

_HALVINGS = 8

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
    those parameters of the program that have no closed form, which takes `optimizer_steps` steps a round; what these come
    to is halved, too, until the bound does not fall.

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

    @torch.no_grad()
    def __call__(self, joint: Joint, evidence: Evidence, q: Values, generator: torch.Generator) -> Posterior:
        if type(joint.prior).guide is not GraphPrior.guide:
            raise InputError(
                f"{type(joint.prior).__name__} writes its own guide, NaturalGradient fits the automatic one; "
                "use SVIStep (--e-step svi)"
            )
        guide = discrete_guide(joint, evidence)
        starts = starting_points(guide, joint, evidence, q, generator, self.keep)
        best, graph = self._highest(_Fit(self, joint, joint.prior, guide, (evidence,), generator), starts)
        return best._replace(moments={**best.moments, "Y": looked_at(graph.detach(), evidence)})

    @torch.no_grad()
    def fit(self, program: Program, *args: Any, generator: torch.Generator) -> Posterior:
        """The posterior of a program that is called with `args`; its parameters are learned, in place.

        After the first sweeps the optimiser takes at most `optimizer_steps` steps, and q is swept anew after each: what
        rises is max_q H. They end when several in a row raise the bound by less than `tol`.
        """
        guide = discrete_guide(program, *args)
        with promoted():
            starts = [filled(guide, start, generator) for start in program.starts(*args, generator) or [{}]]
        return self._highest(_Fit(self, program, program, guide, args, generator, to_the_end=True), starts)[0]

    def _highest(self, fit: _Fit, starts: list[Values]) -> tuple[Posterior, Any]:
        """The result of the start that ends at the highest bound, and what the program returns there.

        The program is compiled if it can be: everything begins again in Pyro where it turns out that it cannot.
        """
        starts = starts + [filled(fit.guide, {}, fit.generator) for _ in range(self.restarts)]
        parameters, random = fit.program.state(), fit.generator.get_state()
        try:
            with soft_values():
                compiled = fit.compiled(starts[0])
                best, given = fit.highest(compiled, starts)
                bound, graph = fit.played(best)
                graph = fit.shown(best, given, graph)
            check_same(best.elbo, bound, compiled.precision)
            return best, graph
        except UnsupportedError as reason:
            if not (isinstance(fit.joint, Joint) and fit.joint.table is None):
                warnings.warn(
                    f"{type(fit.program).__name__} runs in Pyro at every evaluation, which is slow: {reason}",
                    stacklevel=2,
                )
        fit.generator.set_state(random)
        fit.program.load_state_dict(parameters)
        with soft_values():
            best, given = fit.highest(fit.interpreted(starts[0]), starts)
            return best, fit.shown(best, given, fit.played(best)[1])


def discrete_guide(model: AnyProgram, *args: Any) -> AutoMeanField:
    """The automatic guide, whose factors must be discrete or Dirichlet."""
    guide = AutoMeanField(model)
    guide.setup(*args)
    if "normal" in guide.kinds.values():
        name = next(site for site, kind in guide.kinds.items() if kind == "normal")
        raise InputError(f"site '{name}' is continuous, NaturalGradient needs discrete or Dirichlet sites; use SVIStep")
    for name in guide.sites:
        if guide.subsampled(name):
            raise InputError(
                f"site '{name}' is in the subsampled plate '{guide.subsampled(name)[0]}', NaturalGradient needs all "
                "of it at once; use SVI"
            )
    return guide


@dataclass(frozen=True)
class _Fit:
    """What is fitted: `joint` is what is scored, `program` whose parameters are learned, of a graph's joint its prior."""

    settings: NaturalGradient
    joint: AnyProgram
    program: Program
    guide: AutoMeanField
    args: tuple[Any, ...]
    generator: torch.Generator
    to_the_end: bool = False
    weights: dict[str, Tensor | None] = field(default_factory=dict)
    scales: dict[str, Tensor | None] = field(default_factory=dict)

    def natural(self, start: Values) -> Values:
        """The natural parameters of a start by site."""
        return {name: start[self.guide.parameter_name(name)] for name in self.guide.kinds}

    def moments(self, start: Values) -> Values:
        return {name: expected(self.guide.kinds[name], value) for name, value in self.natural(start).items()}

    def values(self, moments: Values) -> Values:
        """The moments as values of the sites: of a Dirichlet it is those of log pi that are kept."""
        return {name: m.exp() if self.guide.kinds[name] == "dirichlet" else m for name, m in moments.items()}

    def compiled(self, start: Values) -> Compiled:
        """Compiled; at the first of its kind in this process all derivatives are compared with Pyro's, too."""
        if isinstance(self.joint, Joint) and self.joint.table is None:
            raise UnsupportedError("the evidence is a function of the graph")
        found = Compiled(self.joint, self.program, self.guide.kinds, self.moments(start), self.args)
        parameters = dict(self.program.named_parameters())
        case = type(self.program), tuple(self.guide.kinds.items()), tuple(parameters)
        if case not in _COMPARED:
            check_derivatives(found, self.interpreted(start), parameters.values(), found.precision)
            _COMPARED.add(case)
        return found

    def interpreted(self, start: Values) -> Expectation:
        return Interpreted(self.joint, self.guide.kinds, self.moments(start), self.args)

    def highest(self, expectation: Expectation, starts: list[Values]) -> tuple[Posterior, Values]:
        """The result of the start that ends at the highest bound, and the parameters that its q was found with."""
        before, ends = self.program.state(), []
        for number, start in enumerate(starts):
            if number:
                self.program.load_state_dict(before)
                expectation.refresh(before)
            posterior, given = _Ascent(self, expectation, self.natural(start)).run()
            ends.append((posterior, given, self.program.state() if len(starts) > 1 else None))
        best, given, parameters = max(ends, key=lambda end: end[0].elbo)
        if parameters is not None:
            self.program.load_state_dict(parameters)
        return best, given

    def played(self, posterior: Posterior) -> tuple[float, Any]:
        """The bound at a posterior and what the program returns there, by a run in Pyro."""
        natural, moments = self.natural(posterior.q), self.moments(posterior.q)
        total, trace = log_joint(self.joint, self.values(moments), *self.args)
        entropies = [
            self.total(name, entropy(self.guide.kinds[name], value, moments[name])) for name, value in natural.items()
        ]
        return float(total) + sum(entropies), trace.nodes["_RETURN"]["value"]

    def shown(self, posterior: Posterior, given: Values, graph: Any) -> Any:
        """What the program returns with the parameters that q was found with; `graph` is what it returns with the present.

        The graph of a round is that of its E-step: where Y is a function of parameters, clients mix by it first, and the
        step on the parameters comes after, as L2C prints it.
        """
        after = self.program.state()
        if "Y" in self.guide.kinds or all(torch.equal(given[name], value) for name, value in after.items()):
            return graph
        self.program.load_state_dict(given)
        _, trace = log_joint(self.program, self.values(self.moments(posterior.q)), *self.args)
        self.program.load_state_dict(after)
        return trace.nodes["_RETURN"]["value"]

    def total(self, name: str, each: Tensor) -> float:
        """The sum over a site's variables, of what is not masked."""
        weight = self.counted(name, each)
        return float(each.sum() if weight is None else each.flatten().dot(weight.flatten()))

    def scale(self, name: str, like: Tensor) -> Tensor | None:
        """The scale of a site for each number of its natural parameter; None if it is 1."""
        if name not in self.scales:
            scale = torch.as_tensor(self.guide.scale(name)).to(like)
            each = scale if self.guide.kinds[name] == "bernoulli" else scale.unsqueeze(-1)
            self.scales[name] = None if bool((scale == 1).all()) else each.expand(like.shape)
        return self.scales[name]

    def counted(self, name: str, like: Tensor) -> Tensor | None:
        """How often the variables of a site count: 0 where masked, its scale elsewhere; None if all count once."""
        if name not in self.weights:
            mask, scale = self.guide.mask(name), torch.as_tensor(self.guide.scale(name)).to(like)
            everything = mask is None or mask is True or (isinstance(mask, Tensor) and bool(mask.all()))
            once = everything and bool((scale == 1).all())
            counts = scale * (1.0 if everything else torch.as_tensor(mask).to(like))
            self.weights[name] = None if once else counts.expand(like.shape).contiguous()
        return self.weights[name]


class _Ascent:
    """One run of coordinate ascent: the current factors and the bound."""

    def __init__(self, fit: _Fit, expectation: Expectation, natural: Values) -> None:
        self.fit, self.settings, self.program, self.generator = fit, fit.settings, fit.program, fit.generator
        self.kinds, self.expectation, self.natural = fit.guide.kinds, expectation, natural
        self.entropies: Values = {}
        self.place(natural)

    def place(self, natural: Values) -> None:
        """Set all factors."""
        self.natural = dict(natural)
        self.entropies.clear()
        for name, value in natural.items():
            self.expectation.update(name, expected(self.kinds[name], value))

    def entropy(self, name: str) -> Tensor:
        """That of each of the site's variables, computed where its factor has changed."""
        if name not in self.entropies:
            kind, moment = self.kinds[name], self.expectation.moments[name]
            self.entropies[name] = entropy(kind, self.natural[name], moment)
        return self.entropies[name]

    def run(self) -> tuple[Posterior, Values]:
        """The result, and the parameters that q was found with, before they were raised."""
        self.bound = self.bound_here()
        self.interacting = {name for name in self.kinds if self.interacts(name)}
        bounds = [self.bound, *self.sweep()]
        if self.program.accumulates:
            self.raise_closed_form()
            bounds[-1] = self.bound = self.bound_here()
        if self.fit.to_the_end:
            bounds += self.raise_with_q()
        given = self.program.state()
        if not self.fit.to_the_end:
            bounds += self.raise_by_gradient()
        q = {self.fit.guide.parameter_name(name): value for name, value in self.natural.items()}
        moments = {name: factor(self.kinds[name], value).mean for name, value in self.natural.items()}
        return Posterior(q, moments, tuple(bounds)), given

    def bound_here(self) -> float:
        """The bound at these factors: E_q[log p] and the entropy."""
        return self.expectation.expected() + sum(self.fit.total(name, self.entropy(name)) for name in self.kinds)

    def sweep(self) -> list[float]:
        """Move all sites in turn until none moves any more; the bound after each sweep."""
        bounds = []
        order = sorted(self.kinds, key=lambda name: name != "Y")
        for _ in range(self.settings.sweeps):
            before = dict(self.expectation.moments)
            for name in order:
                if name not in self.interacting:
                    self.move(name)
                elif self.natural[name].dim() == (self.kinds[name] != "bernoulli"):
                    self.move_alone(name)
                else:
                    for clients in self.groups(name):
                        self.move_some(name, clients)
            if not self.program.accumulates:
                self.raise_closed_form()
            self.bound = self.bound_here()
            bounds.append(self.bound)
            if self.moved(before) < self.settings.tol:
                break
        return bounds

    def moved(self, before: Values) -> float:
        """How far the moments are from what they were, at most."""
        now = self.expectation.moments
        return max((float((m - before[name]).abs().max()) for name, m in now.items()), default=0.0)

    def interacts(self, name: str) -> bool:
        """Does the optimum of this site's factor for one client depend on its factor for another?"""
        moment = self.expectation.moments[name]
        # Drawn in any case: what comes after does not depend on what is known of the program.
        other = torch.rand(moment.shape, generator=self.generator, dtype=moment.dtype) + 0.5
        if not self.expectation.repeats(name):
            return False
        here = self.expectation.derivative(name)
        self.expectation.update(name, expected(self.kinds[name], other))
        moved = self.expectation.derivative(name)
        self.expectation.update(name, moment)
        return bool((moved - here).abs().max() > 1e-9 * (1 + here.abs().max()))

    def groups(self, name: str) -> list[Tensor]:
        """A random partition of the clients into groups that move together."""
        num_clients = self.natural[name].shape[0]
        return list(torch.randperm(num_clients, generator=self.generator).chunk(min(self.settings.blocks, num_clients)))

    def target(self, name: str, rows: Tensor | None = None) -> Tensor:
        """The natural parameter of a site's optimum given everything else."""
        # The logarithm of a probability of 0 is as good as any very low number, and can be computed with.
        target = self.expectation.derivative(name, rows)
        scale = self.fit.scale(name, self.natural[name])
        if scale is not None:  # its entropy counts as often
            target = target / (scale if rows is None else scale[rows])
        target = target.clamp(min=NEVER)
        return target + 1 if self.kinds[name] == "dirichlet" else target

    def move(self, name: str) -> None:
        """Move a site that does not interact with itself: E_q[log p] is linear in it, so that the bound cannot fall."""
        target, step = self.target(name), self.settings.step
        self.natural[name] = target if step == 1 else (1 - step) * self.natural[name] + step * target
        self.entropies.pop(name, None)
        self.expectation.update(name, expected(self.kinds[name], self.natural[name]))

    def move_alone(self, name: str) -> None:
        """Move a site that is one variable and interacts with itself; halve the step while the bound falls."""
        natural = self.natural[name]
        target, step, before = self.target(name), self.settings.step, self.bound_here()
        for _ in range(_HALVINGS):
            there = target if step == 1 else (1 - step) * natural + step * target
            self.place({**self.natural, name: there})
            if self.bound_here() >= before - 1e-10 * (1 + abs(before)):
                return
            step /= 2
        self.place({**self.natural, name: natural})

    def move_some(self, name: str, rows: Tensor) -> None:
        """Move some clients of a site to their optimum given the others; halve the step while the bound falls."""
        target, moments, natural = self.target(name, rows), self.expectation.moments[name], self.natural[name]
        kind, weight, step = self.kinds[name], self.fit.weights[name], self.settings.step
        entropies = self.entropy(name)
        for _ in range(_HALVINGS):
            there = target if step == 1 else (1 - step) * natural[rows] + step * target
            moment, left = expected_with_entropy(kind, there)
            gained = left - entropies[rows]
            rise = float((gained if weight is None else gained * weight[rows]).sum())
            rise += self.expectation.rise(name, moment, rows)
            if rise >= -1e-10 * (1 + abs(self.bound)):
                self.natural[name] = natural.index_copy(0, rows, there)
                self.entropies[name] = entropies.index_copy(0, rows, left)
                self.bound += rise
                return
            self.expectation.update(name, moments)
            step /= 2

    def raise_closed_form(self) -> None:
        """Set the closed-form parameters to their optimum given the moments."""
        self.expectation.refresh(set_closed_form(self.program, self.expectation.moments, *self.fit.args))

    def free_parameters(self) -> dict[str, Tensor]:
        """Those that have no closed form, by name."""
        with promoted():
            solved = set(self.program.closed_form(self.expectation.moments, *self.fit.args))
        return {
            name: parameter
            for name, parameter in self.program.named_parameters()
            if parameter.requires_grad and name.removesuffix("_unconstrained") not in solved
        }

    def optimizer(self, free: dict[str, Tensor]) -> tuple[torch.optim.Optimizer, Callable[[], Tensor]]:
        """The optimiser of these parameters, and what it lowers: -E_q[log p] at the q of the moment."""
        with optimizer_settings():
            optimizer = self.settings.optimizer(free.values())

        def closure() -> Tensor:
            optimizer.zero_grad()
            with torch.enable_grad():
                loss = self.expectation.loss()
                if loss.requires_grad:  # not where the program uses none of these parameters
                    loss.backward()
            return loss

        return optimizer, closure

    def advance(self, free: dict[str, Tensor], move: Callable[[], None], rises: Callable[[], bool]) -> bool:
        """Move these parameters, and go back half of the way until the bound `rises`; all of it if it never does."""
        here = [parameter.detach().clone() for parameter in free.values()]
        move()
        there = [parameter.detach().clone() for parameter in free.values()]
        for step in (*(0.5**halved for halved in range(_HALVINGS)), 0.0):
            for parameter, start, end in zip(free.values(), here, there, strict=True):
                parameter.copy_(torch.lerp(start, end, step) if step else start)
            self.expectation.refresh(free)
            if step and rises():
                return True
        return False

    def raise_by_gradient(self) -> list[float]:
        """Raise the bound in the free parameters, at this q."""
        free = self.free_parameters()
        if not free:
            return [self.bound]
        optimizer, closure = self.optimizer(free)

        def move() -> None:
            for _ in range(self.settings.optimizer_steps):
                optimizer.step(closure)  # type: ignore[arg-type]
            optimizer.zero_grad()

        def rises() -> bool:
            bound, before = self.bound_here(), self.bound
            risen = bound >= before - 1e-10 * (1 + abs(before))
            self.bound = bound if risen else before
            return risen

        self.advance(free, move, rises)
        return [self.bound]

    def raise_with_q(self) -> list[float]:
        """Raise max_q H in the free parameters; the bound after each step and the sweeps that follow it."""
        free = self.free_parameters()
        bounds: list[float] = []
        if not free:
            return bounds
        optimizer, closure = self.optimizer(free)
        still = 0
        while len(bounds) < self.settings.optimizer_steps and still < PATIENCE:
            natural, before = self.natural, self.bound

            def rises(natural: Values = natural, before: float = before) -> bool:
                self.place(natural)
                self.bound = before
                self.sweep()
                return self.bound >= before

            if not self.advance(free, lambda: optimizer.step(closure), rises):  # type: ignore[arg-type]
                self.place(natural)
                self.bound = before
            bounds.append(self.bound)
            still = 0 if self.bound >= before + self.settings.tol else still + 1
        optimizer.zero_grad()
        return bounds
