"""Coordinate ascent on the bound: one run from one start, and the best of several."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from scool_ppl.infer.distributions import NEVER
from scool_ppl.infer.estep.base import Posterior, Values, optimizer_settings, set_closed_form
from scool_ppl.infer.estep.problem import Problem
from scool_ppl.infer.expectation import Expectation
from scool_ppl.infer.moments import entropy, expected, expected_with_entropy, factor
from scool_ppl.infer.program import promoted

_HALVINGS = 8

PATIENCE = 5
"""Steps of the optimiser in a row that raise the bound by less than `tol`, after which `fit` ends."""


def highest(problem: Problem, expectation: Expectation, starts: list[Values]) -> tuple[Posterior, Values]:
    """The result of the start that ends at the highest bound, and the parameters that its q was found with."""
    before, ends = problem.program.state(), []
    for number, start in enumerate(starts):
        if number:
            problem.program.load_state_dict(before)
            expectation.refresh(before)
        posterior, given = Ascent(problem, expectation, problem.natural(start)).run()
        ends.append((posterior, given, problem.program.state() if len(starts) > 1 else None))
    best, given, parameters = max(ends, key=lambda end: end[0].elbo)
    if parameters is not None:
        problem.program.load_state_dict(parameters)
    return best, given


class Ascent:
    """One run of coordinate ascent: the current factors and the bound."""

    def __init__(self, problem: Problem, expectation: Expectation, natural: Values) -> None:
        self.problem, self.settings = problem, problem.settings
        self.program, self.generator = problem.program, problem.generator
        self.kinds, self.expectation, self.natural = problem.guide.kinds, expectation, natural
        self.entropies: Values = {}
        self.place(natural)
        self.bound = self.bound_here()
        self.interacting = {name for name in self.kinds if self.interacts(name)}

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
        bounds = [self.bound, *self.sweep()]
        if self.program.accumulates:
            self.raise_closed_form()
            bounds[-1] = self.bound = self.bound_here()
        if self.problem.to_the_end:
            bounds += self.raise_with_q()
        given = self.program.state()
        if not self.problem.to_the_end:
            bounds += self.raise_by_gradient()
        q = {self.problem.guide.parameter_name(name): value for name, value in self.natural.items()}
        moments = {name: factor(self.kinds[name], value).mean for name, value in self.natural.items()}
        return Posterior(q, moments, tuple(bounds)), given

    def bound_here(self) -> float:
        """The bound at these factors: E_q[log p] and the entropy."""
        return self.expectation.expected() + sum(self.problem.total(name, self.entropy(name)) for name in self.kinds)

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
        scale = self.problem.scale(name, self.natural[name])
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
        kind, weight, step = self.kinds[name], self.problem.weights[name], self.settings.step
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
        self.expectation.refresh(set_closed_form(self.program, self.expectation.moments, *self.problem.args))

    def free_parameters(self) -> dict[str, Tensor]:
        """Those that have no closed form, by name."""
        with promoted():
            solved = set(self.program.closed_form(self.expectation.moments, *self.problem.args))
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
