"""Which prior explains the evidence best: bounds of several models on the same evidence, under the same likelihood.

A bound is below log P(evidence | prior), so a higher one is a reason to prefer a prior: Bayesian model choice. What a prior
learns (B and alpha of a block model) is a point estimate, which costs nothing here: near ties say little.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from scool_ppl.base.codec import Row
from scool_ppl.base.describe import described, versions
from scool_ppl.base.files import csv_text
from scool_ppl.base.progress import counted
from scool_ppl.base.randomness import generator
from scool_ppl.data.federation import Federation
from scool_ppl.em.em import EM
from scool_ppl.em.state import EMState
from scool_ppl.errors import InputError
from scool_ppl.infer.estep.modes import ModeSearch
from scool_ppl.infer.estep.svi import SVIStep
from scool_ppl.infer.priors.base import Joint
from scool_ppl.look.evidence import Evidence
from scool_ppl.runs.folder import Run
from scool_ppl.train.questions import Params
from scool_ppl.workbench.compare import Choice, labels
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.workbench import Workbench

CANDIDATES: tuple[Choice, ...] = (
    *(("scool_sbm", {"blocks": blocks}) for blocks in (1, 2, 3, 4, 6, 8)),
    ("scool_mmsbm", {"blocks": 4}),
    ("ring", {}),
)
"""What is compared where nobody says."""

EVIDENCE = "scool_sbm"
"""The model whose run the evidence comes from."""

NEAR = 3.0
"""Nats: a Bayes factor of twenty to one. What is nearer to the best bound is not told apart from it."""

STEPS, SETTLED = 50, 1e-3


class Bound(NamedTuple):
    """The bound of one model, in nats, and what has to be known of it."""

    name: str
    bound: float
    note: str


class Choices(NamedTuple):
    """The bounds of several models, in the order in which they were given, on the same evidence."""

    bounds: tuple[Bound, ...]
    likelihood: str
    evidence: str

    @property
    def best(self) -> Bound:
        return max(self.bounds, key=lambda one: one.bound)

    @property
    def near(self) -> list[Bound]:
        """The others that the evidence does not tell apart from the best."""
        return [one for one in self.bounds if one is not self.best and self.best.bound - one.bound < NEAR]

    def rows(self) -> list[Row]:
        """A row a model: its bound, and how far below the best it is."""
        return [{**one._asdict(), "below the best": self.best.bound - one.bound} for one in self.bounds]

    def save(self, out: str | os.PathLike[str]) -> Path:
        """Write choice.json, choice.csv and choice.png into a new folder."""
        from scool_ppl.plots.bounds import draw_bounds
        from scool_ppl.plots.style import save_figure

        folder = Run.create(out, {"choice": [one.name for one in self.bounds]})
        told: Row = {"best": self.best.name, "near": [one.name for one in self.near], "likelihood": self.likelihood}
        told |= {"evidence": self.evidence, "versions": versions()}
        folder.write_json("choice.json", {**told, "bounds": self.rows()})
        folder.write_text("choice.csv", csv_text(self.rows()))
        save_figure(draw_bounds({one.name: one.bound for one in self.bounds}, near=NEAR), folder.path / "choice.png")
        return folder.path


def choose(
    models: Sequence[Choice],
    federation: Federation,
    settings: Settings,
    *,
    evidence: str = EVIDENCE,
    progress: bool = True,
) -> Choices:
    """Bounds on the evidence of the round after the last of the model `evidence`, by each model's own E-step."""
    names = labels(models)
    bench = Workbench(federation, settings, progress=progress)
    reference = bench.em(evidence)
    candidates = {name: bench.em(model, **choices) for name, (model, choices) in zip(names, models, strict=True)}
    likelihood = check_comparable(candidates)
    state = reference.fit(settings.rounds, progress=progress).state
    trained = reference.train(state, reference.round_start(state)).trained.params
    found = []
    with counted("bounds" if progress else None, len(candidates)) as report:
        for name, em in candidates.items():
            found.append(Bound(name, best_bound(em, *looked(em, state, trained)), _note(em)))
            report(name)
    told = f"of round {state.round + 1} of {evidence} on {federation.spec}, seed {settings.seed}"
    return Choices(tuple(found), likelihood, told)


def check_comparable(candidates: dict[str, EM]) -> str:
    """The one likelihood of all; raises InputError where bounds are of something else."""
    told: dict[str, tuple[str, ...]] = {}
    for name, em in candidates.items():
        model = em.model
        if em.beside:
            raise InputError(f"{name} is a portfolio of several models, each with a bound of its own; name one of them")
        if not model.likelihood.needs:
            raise InputError(
                f"{name} ignores the evidence ({described(model.likelihood)}), so it has no bound on it; leave it out"
            )
        if model.prior.kind == "point":
            raise InputError(f"{name} ends at one table of weights, whose density is no bound; leave it out")
        sees = "with" if model.prior.includes_self else "without"
        told[name] = (described(model.likelihood), described(model.peers), f"candidates {sees} the client itself")
    first, *others = told
    for name in others:
        for one, other in zip(told[first], told[name], strict=True):
            if one != other:
                raise InputError(
                    f"bounds are compared on the same evidence under the same likelihood; {first} has {one}, {name} has "
                    f"{other}; give both the same"
                )
    return told[first][0]


def looked(em: EM, state: EMState, trained: Params) -> tuple[Joint, Evidence]:
    """What this model makes of networks that another one's round has trained."""
    start = em.round_start(state._replace(initial=em.init().initial))
    evidence, joint, _ = em.look(start, trained)
    if callable(joint.log_lik) and not isinstance(em.model.e_step, ModeSearch):
        raise InputError(
            f"{described(em.model.likelihood)} scores the mean of the graph, which is no bound; leave such models out"
        )
    return joint, evidence


def best_bound(em: EM, joint: Joint, evidence: Evidence) -> float:
    """E-steps from one another's end, with what the prior learns, until the bound has settled."""
    step: Any = em.model.e_step
    if is_dataclass(step) and not isinstance(step, type):
        longer = {"keep": 1.0, "sweeps": 100}
        step = replace(step, **{one.name: longer[one.name] for one in fields(step) if one.name in longer})
    found = step(joint, evidence, {}, generator(0, "choose"))
    for number in range(STEPS):
        further = step(joint, evidence, found.q, generator(number, "choose"))
        if further.elbo - found.elbo < SETTLED:
            break
        found = further
    return float(found.elbo)


def _note(em: EM) -> str:
    if isinstance(em.model.e_step, ModeSearch):
        return "log joint of the best configuration: a lower bound than an average over q"
    if isinstance(em.model.e_step, SVIStep):
        return "by SVI: may be short of its best"
    return ""
