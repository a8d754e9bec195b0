"""What every E-step shares: its result, where it starts, and the prior's closed-form parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.program import Program, promoted
from scool_ppl.look.evidence import Evidence

Values = dict[str, Tensor]


class Posterior(NamedTuple):
    """What was found. The program's own parameters are updated in place, as Pyro modules are."""

    q: Values
    """Parameters of the guide, to start the next round from."""
    moments: Values
    """E_q of each site: of a graph's program "Y" is the graph (K, M), 0 where masked, "z" the memberships, ..."""
    bounds: tuple[float, ...]
    """The bound after each sweep or step; the last one counts."""

    @property
    def elbo(self) -> float:
        return self.bounds[-1]


def looked_at(graph: Tensor, evidence: Evidence) -> Tensor:
    """E[Y] (K, M), 0 where nobody looked: q(Y) is flat there, and a pair must not look like a coin that was tossed."""
    return torch.where(evidence.peers.mask, graph, torch.zeros_like(graph))


class EStep(Protocol):
    """Fits q to the evidence, starting from the last round's q (empty in the first)."""

    def __call__(self, joint: Joint, evidence: Evidence, q: Values, generator: torch.Generator) -> Posterior: ...


def starting_points(
    guide: AutoMeanField, joint: Joint, evidence: Evidence, q: Values, generator: torch.Generator, keep: float
) -> list[Values]:
    """Where to start: last round's q, one-hot sites softened towards uniform; else each of the prior's own starts."""
    warm = softened(guide, q, keep)
    if q and len(warm) == len([kind for kind in guide.kinds.values() if kind != "normal"]):
        return [warm]
    table = joint.table
    with promoted():
        starts = (
            []
            if table is None
            else joint.prior.starts(evidence, torch.where(evidence.peers.mask, table, 0.0), generator)
        )
    # Sites whose shape has changed with the candidates start anew; what still fits is kept.
    return [filled(guide, start, generator) | warm for start in (starts[:1] if warm else starts) or [{}]]


def filled(guide: AutoMeanField, start: Values, generator: torch.Generator) -> Values:
    """Parameters with the moments that `start` names; other sites flat, one-hot ones random: symmetry is a saddle."""
    values = {}
    for name, kind in guide.kinds.items():
        if kind == "normal":
            continue
        parameter = guide.parameter_name(name)
        flat = getattr(guide, parameter).detach()
        if name in start and kind == "dirichlet":
            raise InputError(f"starts names the Dirichlet site '{name}', expected one-hot or edge sites only")
        if name in start:
            mean = start[name].to(flat).clamp(1e-12, 1 - 1e-12)
            values[parameter] = mean.log() if kind == "one-hot" else mean.logit()
        elif kind == "one-hot":
            values[parameter] = torch.randn(flat.shape, generator=generator, dtype=flat.dtype)
        else:
            values[parameter] = flat.clone()
    return values


def softened(guide: AutoMeanField, q: Values, keep: float) -> Values:
    """Last round's parameters that still fit, with one-hot moments m replaced by keep m + (1 - keep) / G."""
    values = {}
    for name, kind in guide.kinds.items():
        if kind == "normal":
            continue
        parameter = guide.parameter_name(name)
        last = q.get(parameter)
        if last is None or last.shape != getattr(guide, parameter).shape:
            continue
        values[parameter] = (keep * last.softmax(-1) + (1 - keep) / last.shape[-1]).log() if kind == "one-hot" else last
    return values


@contextmanager
def optimizer_settings() -> Iterator[None]:
    """An optimiser that refuses its settings, as torch's do when they are made, is an InputError."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("Invalid "):
            raise
        raise InputError(f"the optimiser refuses its settings: {error}; correct them") from error


def set_closed_form(program: Program, moments: Values, *args: Any) -> list[str]:
    """Assign what `closed_form` returns, but for what is frozen; the names of what was assigned."""
    with torch.no_grad():
        try:
            every = program.closed_form(moments, *args)
        except RuntimeError:  # as a rule one precision is not mixed with another, and watching over that takes time
            with promoted():
                every = program.closed_form(moments, *args)
        solved = {name: value for name, value in every.items() if name not in program.frozen}
        for name, value in solved.items():
            setattr(program, name, value.contiguous())  # gradients are, and torch warns where parameters are not
    return list(solved)
