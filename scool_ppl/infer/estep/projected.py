"""ProjectedGradient: gradient ascent on the graph itself, kept in a box or on a simplex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from scool_ppl.base.arguments import positive, whole
from scool_ppl.errors import InputError, unknown
from scool_ppl.infer.estep.base import Posterior, Values
from scool_ppl.infer.moments import log_joint
from scool_ppl.infer.priors.base import Joint
from scool_ppl.look.evidence import Evidence

Domain = Literal["box", "simplex"]

_HALVINGS = 12


@dataclass(frozen=True)
class ProjectedGradient:
    """q(Y) is a point mass at w: w <- P(w + step d log p(w, D) / d w), P the projection on [0, 1] or on row simplexes.

    A step is halved while the bound would fall, which it never does where log p is linear in w.

    Starts from the last graph, else from the prior's `initial_graph`, else from the middle of the domain. Pairs that are
    masked keep their weight; so do, in the box under a flat prior, pairs without evidence in this round.
    """

    step: float = 0.1
    domain: Domain = "box"
    steps: int = 1

    def __post_init__(self) -> None:
        if not positive(self.step) or not whole(self.steps):
            raise InputError(
                f"ProjectedGradient(step={self.step}, steps={self.steps}): expected a positive step and at least one step"
            )
        if self.domain not in get_args(Domain):
            raise unknown("domain", str(self.domain), get_args(Domain))

    def __call__(self, joint: Joint, evidence: Evidence, q: Values, generator: torch.Generator) -> Posterior:
        mask = evidence.peers.mask
        graph = q.get("Y", joint.prior.initial_graph())
        if graph is None:
            graph = torch.full(mask.shape, 0.5, dtype=torch.float64)
            graph = graph if self.domain == "box" else mask.double() / mask.sum(1, keepdim=True).clamp(min=1)
        elif graph.shape != mask.shape or "Y" not in q:
            graph = evidence.peers.take(graph)
        graph = torch.where(mask, self.project(graph.double(), mask), graph.double())
        bound, gradient = self._score(joint, evidence, graph)
        bounds = [bound]
        for _ in range(self.steps):
            for step in (self.step * 0.5**halved for halved in range(_HALVINGS)):
                there = torch.where(mask, self.project(graph + step * gradient, mask), graph)
                found = self._score(joint, evidence, there)
                if found[0] >= bound - 1e-10 * (1 + abs(bound)):
                    graph, (bound, gradient) = there, found
                    break
            bounds.append(bound)
        shown = torch.where(mask, graph, torch.zeros_like(graph))
        return Posterior({"Y": graph}, {"Y": shown}, tuple(bounds))

    def _score(self, joint: Joint, evidence: Evidence, graph: Tensor) -> tuple[float, Tensor]:
        """log p(graph, D) and its gradient, 0 where masked."""
        leaf = graph.detach().clone().requires_grad_()
        value, _ = log_joint(joint, {"Y": leaf}, evidence)
        (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True) if value.requires_grad else (None,)
        gradient = torch.zeros_like(leaf) if gradient is None else gradient
        return float(value.detach()), torch.where(evidence.peers.mask, gradient, torch.zeros_like(gradient))

    def project(self, graph: Tensor, mask: Tensor) -> Tensor:
        """The nearest graph in the domain: clipped to [0, 1], or rows on the simplex of their candidates."""
        return graph.clamp(0, 1) if self.domain == "box" else onto_simplex(graph, mask)


def onto_simplex(rows: Tensor, mask: Tensor) -> Tensor:
    """Euclidean projection of each row (over its unmasked entries) on the probability simplex; masked entries are 0.

    w_j = max(v_j - t, 0) with t such that they sum to one, found by sorting.
    """
    values = torch.where(mask, rows, torch.full_like(rows, -torch.inf))
    ordered = values.sort(1, descending=True).values
    finite = torch.where(ordered.isfinite(), ordered, torch.zeros_like(ordered))
    count = torch.arange(1, rows.shape[1] + 1)
    thresholds = (finite.cumsum(1) - 1) / count
    support = ((ordered > thresholds) & ordered.isfinite()).sum(1, keepdim=True).clamp(min=1)
    threshold = thresholds.gather(1, support - 1)
    return torch.where(mask, (values - threshold).clamp(min=0), torch.zeros_like(rows))
