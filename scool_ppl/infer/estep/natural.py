"""NaturalGradient: coordinate ascent for any program that is linear in its moments, without derivations."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scool_ppl.base.arguments import finite, whole
from scool_ppl.errors import InputError
from scool_ppl.infer.compiled import UnsupportedError, check_same
from scool_ppl.infer.estep.ascent import highest
from scool_ppl.infer.estep.base import Posterior, Values, filled, looked_at, starting_points
from scool_ppl.infer.estep.problem import Problem
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.moments import AnyProgram, soft_values
from scool_ppl.infer.priors.base import GraphPrior, Joint
from scool_ppl.infer.program import Program, promoted
from scool_ppl.look.evidence import Evidence


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
        best, graph = self._highest(Problem(self, joint, joint.prior, guide, (evidence,), generator), starts)
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
        return self._highest(Problem(self, program, program, guide, args, generator, to_the_end=True), starts)[0]

    def _highest(self, problem: Problem, starts: list[Values]) -> tuple[Posterior, Any]:
        """The result of the start that ends at the highest bound, and what the program returns there.

        The program is compiled if it can be: everything begins again in Pyro where it turns out that it cannot.
        """
        starts = starts + [filled(problem.guide, {}, problem.generator) for _ in range(self.restarts)]
        parameters, random = problem.program.state(), problem.generator.get_state()
        try:
            with soft_values():
                compiled = problem.compiled(starts[0])
                best, given = highest(problem, compiled, starts)
                bound, graph = problem.played(best)
                graph = problem.shown(best, given, graph)
            check_same(best.elbo, bound, compiled.precision)
            return best, graph
        except UnsupportedError as reason:
            if not (isinstance(problem.joint, Joint) and problem.joint.table is None):
                warnings.warn(
                    f"{type(problem.program).__name__} runs in Pyro at every evaluation, which is slow: {reason}",
                    stacklevel=2,
                )
        problem.generator.set_state(random)
        problem.program.load_state_dict(parameters)
        with soft_values():
            best, given = highest(problem, problem.interpreted(starts[0]), starts)
            return best, problem.shown(best, given, problem.played(best)[1])


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
