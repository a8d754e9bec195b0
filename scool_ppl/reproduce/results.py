"""What the stored cells of an experiment say: chosen candidates, and measures by row and column."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Any, cast, get_args

import torch
from torch import Tensor

from scool_ppl.base.codec import Row
from scool_ppl.base.statistics import mean_of_worst, over_clients
from scool_ppl.errors import RunError
from scool_ppl.reproduce.experiment import BY_CLIENT, Cell, Column, Deployed, Experiment, Method
from scool_ppl.runs.rows import against_local
from scool_ppl.runs.store import Store

AS_GOOD = 1e-4
"""Means of accuracies that are stored with four digits differ by so much where the accuracies are the same."""


class Results:
    """The cells of an experiment in its store."""

    def __init__(self, experiment: Experiment, store: Store) -> None:
        self.experiment, self.store = experiment, store
        self._verified: dict[str, Row] = {}

    def shown_as(self, experiment: Experiment) -> Results:
        """The same cells for an experiment that differs in what it shows."""
        other = Results(experiment, self.store)
        other._verified = self._verified
        return other

    def chosen(self, column: Column, method: Method) -> Row:
        """The candidate of the best validation accuracy under the tuning seed; the first of those that are as good but for
        rounding.
        """
        first, *others = method.candidates
        if not others:
            return first
        tried = [
            self.experiment.cell(column, method, choice, self.experiment.tuning_seed) for choice in method.candidates
        ]
        scores = [self.validated(method, self.record(cell)) for cell in tried]
        best = max((score for score in scores if not math.isnan(score)), default=math.nan)
        return next((c for c, score in zip(method.candidates, scores, strict=True) if score >= best - AS_GOOD), first)

    def validated(self, method: Method, record: Row) -> float:
        """Mean validation accuracy of the networks that count; what they do on test data is not looked at."""
        if record["validation"] is None:
            raise RunError("a federation has no validation images to choose by; give it validation=0.2")
        return float(self._deployed(method, record, "validation", self.experiment.accuracy).nanmean())

    def record(self, cell: Cell) -> Row:
        """The numbers of a cell; its request is compared once."""
        if cell.key not in self._verified:
            self._verified[cell.key] = self._stored(cell)
        return self._verified[cell.key]

    def _stored(self, cell: Cell) -> Row:
        record = self.store.get(cell)
        if record is None:
            raise RunError(f"cell '{cell.key}' is missing in {self.store.path.name}; run `scool reproduce` to fill it")
        tuning = cell.seed == self.experiment.tuning_seed
        full = ("test", "graph") if self.experiment.compact else ("test", "validation", "graph", "history")
        for name in ("validation",) if tuning else full:
            if name not in record:
                raise RunError(
                    f"cell '{cell.key}' in {self.store.path.name} is damaged: it has no {name}; delete the cell and run "
                    "`scool reproduce` again"
                )
        return record

    def records(self, column: Column, method: Method) -> list[Row]:
        """The numbers of a row and column, one a seed."""
        choice = self.chosen(column, method)
        experiment = self.experiment
        seeds = experiment.seeds_of(column, method)
        return [self.record(experiment.cell(column, method, choice, seed)) for seed in seeds]

    def by_client(self, column: Column, method: Method) -> list[Tensor]:
        """Test accuracy (K,) of the networks that count, one a seed."""
        name = self.experiment.accuracy
        return [self._deployed(method, record, "test", name) for record in self.records(column, method)]

    def values(self, column: Column, method: Method, measure: str) -> list[float] | None:
        """A measure, one number a seed; None where it is undefined."""
        if not method.runs_in(column):
            return None
        if measure == "regret":
            return self._regret(column, method)
        if measure in get_args(Deployed):
            return self.values(column, self._as_is(column, method, measure), "accuracy")
        records = self.records(column, method)
        if measure == "trust":
            shares = [record.get("trust") for record in records]
            known = [share["hostile"] / share["honest"] for share in shares if share and share["honest"] > 0]
            return known or None
        if measure in ("gain", "below", "improved") and not self.experiment.compact:
            return self._against_local(column, method, measure)
        found = [self._value(method, record, measure) for record in records]
        return None if None in found else cast(list[float], found)

    def _value(self, method: Method, record: Row, measure: str) -> float | None:
        """A measure of one cell; None where it is undefined."""
        compact = self.experiment.compact
        told: dict[str, Any] = {
            **record["graph"],
            "l1_first": (record.get("first_graph") or {}).get("l1"),
            "seconds": sum(record["seconds"].values()) if "seconds" in record else None,
            "epsilon": record.get("epsilon"),
        }
        if measure in ("l1", "auc", "ari", "l1_first", "seconds", "epsilon"):
            return told.get(measure)
        if measure == "received":
            return float(record["received"] if compact else record["history"]["received"][-1])
        if compact:
            numbers: Row = record["test"].get(method.deployed, {})
            return numbers.get(measure)
        if measure in ("beyond", "worst_gain") or method.deployed not in BY_CLIENT:
            return None
        summary, name = _SUMMARIES.get(measure, _mean), _OTHERS.get(measure)
        return summary(self._deployed(method, record, "test", name or self.experiment.accuracy))

    def _as_is(self, column: Column, method: Method, deployed: str) -> Method:
        """The method with its chosen candidate and other networks that count."""
        return method._replace(candidates=(self.chosen(column, method),), deployed=deployed)

    def best(self, column: Column, method: Method) -> tuple[str, float]:
        """What beats a method by most in a compact column, whichever of its networks it deploys, and by how much: the mean
        difference in accuracy over the seeds that both have; the method itself, by 0, if nothing does.
        """
        own = self.values(column, method, "accuracy") or []
        found = {method.label: 0.0}
        for other in filter(lambda other: other.runs_in(column), self.experiment.methods):
            for kind in sorted({kind for record in self.records(column, other) for kind in record["test"]}):
                theirs = self.values(column, self._as_is(column, other, kind), "accuracy") or []
                differences = [float(their) - float(mine) for their, mine in zip(theirs, own, strict=False)]
                if differences:
                    found.setdefault(f"{other.label}, {kind}", fmean(differences))
        label = max(found, key=lambda label: found[label])
        return label, found[label]

    def _regret(self, column: Column, method: Method) -> list[float] | None:
        """How far a method is below the best one, in the mean over the seeds: one number."""
        return [self.best(column, method)[1]] if self.experiment.compact else None

    def _against_local(self, column: Column, method: Method, measure: str) -> list[float] | None:
        rows = (row for row in self.experiment.methods if row.model == "local" and row.runs_in(column))
        local = next(rows, None)
        if local is None:
            return None
        both = zip(self.by_client(column, method), self.by_client(column, local), strict=False)  # seeds that both have
        if measure == "improved":
            return [float((own > other)[own.isfinite() & other.isfinite()].double().mean()) for own, other in both]
        name = {"gain": "gain_over_local", "below": "below_local"}[measure]
        found = [against_local(own, other)[name] for own, other in both]
        return None if None in found else cast(list[float], found)

    def _deployed(self, method: Method, record: Row, split: str, name: str) -> Tensor:
        """(K,) of a split for the networks that count."""
        if method.deployed == "deployed":
            if method.deployed not in record[split]:
                raise RunError(f"'{method.label}' deploys one network of each client, expected a portfolio; use chosen")
            return _tensor(record[split][method.deployed][name])
        mixed, trained = (_tensor(record[split][when][name]) for when in ("mixed", "trained"))
        if method.deployed == "mixed" or (method.deployed == "chosen" and record["validation"] is None):
            return mixed
        if method.deployed == "trained":
            return trained
        before, after = (_tensor(record["validation"][when]["loss"]) for when in ("mixed", "trained"))
        return torch.where(after.nan_to_num(torch.inf) < before.nan_to_num(torch.inf), trained, mixed)


def _tensor(values: Sequence[Any]) -> Tensor:
    return torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64)


def _mean(values: Tensor) -> float:
    return over_clients(values).mean


_OTHERS = {"loss": "loss", "perplexity": "loss", "task": "task_accuracy"}
_SUMMARIES: dict[str, Callable[[Tensor], float]] = {
    "std": lambda values: over_clients(values).std,
    "worst10": partial(mean_of_worst, share=0.1),
    "worst20": partial(mean_of_worst, share=0.2),
    "perplexity": lambda losses: math.exp(_mean(losses)),
}
