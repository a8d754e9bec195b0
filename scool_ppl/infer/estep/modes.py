"""ModeSearch: the most probable configuration of discrete sites, for programs that are not linear in their moments."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from scool_ppl.base.arguments import whole
from scool_ppl.errors import InputError
from scool_ppl.graph.blocks import by_appearance
from scool_ppl.infer.distributions import NEVER
from scool_ppl.infer.estep.base import Posterior, Values, looked_at, set_closed_form
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.moments import log_joint
from scool_ppl.infer.priors.base import GraphPrior, Joint
from scool_ppl.infer.program import promoted
from scool_ppl.look.evidence import Evidence
from scool_ppl.look.likelihoods import RowWise

Sites = dict[str, Tensor]
"""A configuration: labels (K,) of one-hot sites, values 0 and 1 of Bernoulli sites, by name."""

_AT_ONCE = 2**21  # pairs of clients in one evaluation of several configurations
_TOGETHER = 64  # changes that are tried together


@dataclass(frozen=True)
class ModeSearch:
    """q is a point mass at one configuration of the discrete sites; its bound is the log joint there, log p(z, Y, D).

    Any program of one-hot and Bernoulli sites will do, linear or not. The bound climbs by small changes: one client to
    another label or to an empty one, two labels made one, one Bernoulli variable turned over, or that of a client who
    changes its label. All of them are scored by one run of the program, vectorised over configurations; the best one is
    made, or as many of the best ones together as raise the bound further. It ends where no change raises the bound, or
    after `moves` such steps.

    It starts at the last round's configuration; in the first round at the prior's `starts`, the `searches` best of which
    are climbed from, and the highest bound wins. A climb that meets an earlier one ends there: it would go the same way.
    """

    moves: int = 1000
    searches: int = 3

    def __post_init__(self) -> None:
        if not whole(self.moves, self.searches):
            raise InputError(
                f"ModeSearch(moves={self.moves}, searches={self.searches}): expected whole numbers of at least 1"
            )

    def __call__(self, joint: Joint, evidence: Evidence, q: Values, generator: torch.Generator) -> Posterior:
        if type(joint.prior).guide is not GraphPrior.guide:
            raise InputError(
                f"{type(joint.prior).__name__} writes its own guide, ModeSearch has a point mass for q; use SVIStep"
            )
        climb = _Climb(joint, evidence)
        starts = climb.starts(q, generator)
        scores = climb.score(starts)
        best = scores.argsort(descending=True, stable=True)[: self.searches].tolist()
        found = [climb.climb({name: value[place] for name, value in starts.items()}, self.moves) for place in best]
        sites, bounds = max(found, key=lambda one: one[1][-1])
        return climb.posterior(climb.named(sites, q), bounds)


class _Climb:
    """The sites of a program and the log joint of their configurations."""

    def __init__(self, joint: Joint, evidence: Evidence) -> None:
        self.joint, self.evidence = joint, evidence
        self.guide = AutoMeanField(joint)
        self.guide.setup(evidence)
        self.kinds = self.guide.kinds
        for name, kind in self.kinds.items():
            if kind not in ("one-hot", "bernoulli"):
                raise InputError(
                    f"site '{name}' is {kind}, ModeSearch needs one-hot or Bernoulli sites; use NaturalGradient or SVIStep"
                )
        self.sizes = {name: len(self._parameter(name)[0]) for name, kind in self.kinds.items() if kind == "one-hot"}
        self.scored: tuple[Tensor, Tensor] | None = None
        """A graph, and what each of its rows says of the evidence."""
        self.passed: dict[object, float] = {}
        """Configurations that were climbed through, whatever their labels are called, and their bounds."""
        self.at_once = max(1, _AT_ONCE // evidence.peers.mask.numel())

    def _parameter(self, name: str) -> Tensor:
        parameter: Tensor = getattr(self.guide, self.guide.parameter_name(name))
        return parameter.detach()

    def values(self, sites: Sites) -> Values:
        """The configuration as the program's values."""
        return {
            name: (value[..., None] == torch.arange(self.sizes[name])).double()
            if name in self.sizes
            else value.double()
            for name, value in sites.items()
        }

    def score(self, sites: Sites) -> Tensor:
        """log p (B,) of B configurations (B, ...)."""
        if not sites:
            return log_joint(self.joint, {}, self.evidence)[0].detach()[None]

        def one(joint: Joint, sites: Sites) -> tuple[Tensor, Tensor]:
            total, trace = log_joint(joint, self.values(sites), self.evidence)
            return total, trace.nodes["_RETURN"]["value"]

        log_lik = self.joint.log_lik
        with torch.no_grad():
            if not isinstance(log_lik, RowWise):
                return torch.vmap(partial(one, self.joint), chunk_size=self.at_once)(sites)[0]
            prior = torch.vmap(partial(one, Joint(self.joint.prior, _nothing)))
            found = []
            for start in range(0, _count(sites), self.at_once):
                some = {name: value[start : start + self.at_once] for name, value in sites.items()}
                total, graphs = prior(some)
                found.append(total + self.score_rows(log_lik, graphs))
            return torch.cat(found)

    def score_rows(self, log_lik: RowWise, graphs: Tensor) -> Tensor:
        """log P(D | Y) (B,) of graphs (B, K, M) that differ in few rows: only those are scored anew."""
        here = graphs[0]
        if self.scored is None or not torch.equal(self.scored[0], here):
            self.scored = here, log_lik.rows(torch.arange(len(here)), here)
        terms = self.scored[1].repeat(len(graphs), 1)
        which, receivers = (graphs != here).any(2).nonzero().T
        terms[which, receivers] = log_lik.rows(receivers, graphs[which, receivers])
        return terms.sum(1)

    def starts(self, q: Values, generator: torch.Generator) -> Sites:
        """Configurations to begin with, (B, ...): the last round's, else the prior's, else one at random."""
        last = {name: q.get(self.guide.parameter_name(name)) for name in self.kinds}
        if all(value is not None and value.shape == self._parameter(name).shape for name, value in last.items()):
            return {name: self._mode(name, value)[None] for name, value in last.items() if value is not None}
        with promoted():
            prior_starts = self.joint.prior.starts(self.evidence, self.joint.log_lik, generator) or [{}]
        found: dict[str, list[Tensor]] = {name: [] for name in self.kinds}
        for start in prior_starts:
            for name in self.kinds:
                if name in start:
                    found[name].append(self._mode(name, start[name].clamp(1e-12, 1 - 1e-12).logit()))
                else:
                    found[name].append(self._plain(name, generator))
        return {name: torch.stack(each) for name, each in found.items()}

    def _mode(self, name: str, logits: Tensor) -> Tensor:
        """Labels by appearance, or which variables are more likely 1 than 0; a tie is 1."""
        return by_appearance(logits.argmax(-1).tolist()) if name in self.sizes else (logits >= 0).long()

    def _plain(self, name: str, generator: torch.Generator) -> Tensor:
        """A site that no start names: labels at random, all variables that count at 1."""
        shape = self._parameter(name).shape
        if name in self.sizes:
            return torch.randint(self.sizes[name], shape[:-1], generator=generator)
        return self._free(name, torch.ones(shape)).long()

    def climb(self, sites: Sites, moves: int) -> tuple[Sites, list[float]]:
        """The configuration at the end of the best changes, and the bound after each of them."""
        bounds = [float(self.score({name: value[None] for name, value in sites.items()})[0])]
        for _ in range(moves):
            changes = [] if self.met(sites, bounds[-1]) else list(self.changes(sites))
            if not changes:
                break
            tried = {
                name: torch.cat([change.get(name, value.expand(_count(change), *value.shape)) for change in changes])
                for name, value in sites.items()
            }
            scores = self.score(tried)
            better = scores > bounds[-1] + 1e-9 * (1 + abs(bounds[-1]))
            if not bool(better.any()):
                break
            best = scores.argsort(descending=True, stable=True)[: min(int(better.sum()), _TOGETHER)].tolist()
            steps = _together(sites, [{name: value[place] for name, value in tried.items()} for place in best])
            reached = self.score(steps)
            sites = {name: value[int(reached.argmax())] for name, value in steps.items()}
            bounds.append(float(reached.max()))
        return sites, bounds

    def met(self, sites: Sites, bound: float) -> bool:
        """Has a climb been here? Labels may have other names, to which the bound must be indifferent."""
        here = tuple(
            (name, tuple((by_appearance(value.tolist()) if self._labels(name, value) else value).flatten().tolist()))
            for name, value in sites.items()
        )
        before = self.passed.setdefault(here, math.nan)
        self.passed[here] = bound
        return abs(bound - before) <= 1e-9 * (1 + abs(bound))

    def named(self, sites: Sites, q: Values) -> Sites:
        """Labels called as in the last round where clients rest, who keep what they had: to the bound it is the same."""
        found = dict(sites)
        for name, value in sites.items():
            rests, last = ~self._free(name, value), q.get(self.guide.parameter_name(name))
            if self._labels(name, value) and last is not None and bool(rests.any()) and len(last) == len(value):
                found[name] = _renamed(value, rests, last.argmax(-1), self.sizes[name])
        return found

    def _labels(self, name: str, value: Tensor) -> bool:
        return name in self.sizes and value.dim() == 1

    def changes(self, sites: Sites) -> Iterator[Sites]:
        """Configurations one change away: each table (B, ...) of the site that it changes."""
        for name, value in sites.items():
            free = self._free(name, value)
            if name not in self.sizes:
                places = free.nonzero()
                turned = value.expand(len(places), *value.shape).clone()
                turned[(torch.arange(len(places)), *places.T)] = 1 - value[tuple(places.T)]
                yield {name: turned}
            elif self._labels(name, value):
                table, client = _relabelled(value, free, self.sizes[name])
                yield from ({name: table}, {name: _joined(value)})
                for other, variable in sites.items():
                    if other not in self.sizes and variable.shape == value.shape:
                        turned = variable.expand_as(table).clone()
                        turned[torch.arange(len(client)), client] = 1 - variable[client]
                        yield {name: table, other: turned}

    def _free(self, name: str, value: Tensor) -> Tensor:
        """Which variables count: not those that are masked."""
        mask = self.guide.mask(name)
        return torch.ones_like(value, dtype=torch.bool) if mask is None else torch.as_tensor(mask).expand_as(value)

    def posterior(self, sites: Sites, bounds: list[float]) -> Posterior:
        moments = self.values(sites)
        # So sure that the probabilities of what is not chosen are 0.
        q = {
            self.guide.parameter_name(name): torch.where(value > 0, 0.0, NEVER)
            if name in self.sizes
            else torch.where(value > 0, -NEVER, NEVER)
            for name, value in moments.items()
        }
        set_closed_form(self.joint.prior, moments, self.evidence)
        with torch.no_grad():
            total, trace = log_joint(self.joint, moments, self.evidence)
        graph = looked_at(trace.nodes["_RETURN"]["value"].detach(), self.evidence)
        return Posterior(q, {**moments, "Y": graph}, (*bounds, float(total)))


def _renamed(labels: Tensor, rests: Tensor, last: Tensor, size: int) -> Tensor:
    """The same partition in other names: those who rest (K,) are called as last time, as far as one name is one label."""
    names: dict[int, int] = {}
    for label, name in zip(labels[rests].tolist(), last[rests].tolist(), strict=True):
        if name not in names.values():
            names.setdefault(label, name)
    free = iter([name for name in range(size) if name not in names.values()])
    return torch.tensor(
        [names[label] if label in names else names.setdefault(label, next(free)) for label in labels.tolist()]
    )


def _nothing(graph: Tensor) -> Tensor:
    """No evidence."""
    return graph.new_zeros(())


def _together(sites: Sites, changed: list[Sites]) -> Sites:
    """(B, ...): the first change, the first two that concern different variables, the first three, and so on."""
    here, steps = dict(sites), []
    touched = {name: torch.zeros_like(value, dtype=torch.bool) for name, value in sites.items()}
    for other in changed:
        places = {name: value != sites[name] for name, value in other.items()}
        if not any(bool((places[name] & touched[name]).any()) for name in sites):
            here = {name: torch.where(places[name], other[name], value) for name, value in here.items()}
            touched = {name: touched[name] | places[name] for name in sites}
            steps.append(here)
    return {name: torch.stack([step[name] for step in steps]) for name in sites}


def _count(change: Sites) -> int:
    return len(next(iter(change.values())))


def _relabelled(labels: Tensor, free: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """(B, K): every client who counts under every other label in use, and under an empty one; and which client, (B,)."""
    used = labels.unique()
    empty = [label for label in range(most) if label not in used.tolist()][:1]
    options = torch.tensor([*used.tolist(), *empty])
    client, option = (free[:, None] & (labels[:, None] != options)).nonzero().T
    table = labels.expand(len(client), -1).clone()
    table[torch.arange(len(client)), client] = options[option]
    return table, client


def _joined(labels: Tensor) -> Tensor:
    """(B, K): every two labels in use made one."""
    used = labels.unique()
    pairs = torch.combinations(used, 2)
    return torch.where(labels == pairs[:, 1:], pairs[:, :1], labels)
