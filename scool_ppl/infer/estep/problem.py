"""What NaturalGradient fits: a program with its guide, compiled if it can be, and what it comes to at some moments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from scool_ppl.infer.compiled import Compiled, UnsupportedError, check_derivatives
from scool_ppl.infer.estep.base import Posterior, Values
from scool_ppl.infer.expectation import Expectation, Interpreted
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.moments import AnyProgram, entropy, expected, log_joint, values_at
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.program import Program

if TYPE_CHECKING:
    from scool_ppl.infer.estep.natural import NaturalGradient

_COMPARED: set[object] = set()
"""Programs, by class, sites and parameters, whose compiled derivatives were found to be those of autograd."""


@dataclass(frozen=True)
class Problem:
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

    def played(self, posterior: Posterior) -> tuple[float, Any]:
        """The bound at a posterior and what the program returns there, by a run in Pyro."""
        natural, moments = self.natural(posterior.q), self.moments(posterior.q)
        total, trace = log_joint(self.joint, values_at(self.guide.kinds, moments), *self.args)
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
        _, trace = log_joint(self.program, values_at(self.guide.kinds, self.moments(posterior.q)), *self.args)
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
