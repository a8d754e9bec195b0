"""A tiny experiment, and stored cells with numbers made by hand."""

from __future__ import annotations

from typing import Any

from scool_ppl.reproduce.experiment import Cell, Column, Experiment, Method
from scool_ppl.reproduce.results import Results
from scool_ppl.reproduce.scales import SMOKE
from scool_ppl.runs.store import Store

COLUMN = Column("tiny", "permuted:digits:clients=4,groups=2,train=20", SMOKE)
LOCAL, SBM = Method("Local", "local"), Method("SBM", "scool_sbm", ({}, {"n_eff": 2.0}))
EXTRAS = {"graph": {"l1": None, "auc": None, "ari": None}, "history": {"received": [0.0]}, "seconds": {"train": 0.0}}
"""What the second table shows besides accuracies."""

Numbers = tuple[float | None, ...]


def tiny(**changes: Any) -> Experiment:
    """Two methods, one of them with two candidates, on four clients and for two seeds."""
    values: dict[str, Any] = {"title": "A tiny one", "columns": (COLUMN,), "methods": (LOCAL, SBM), "seeds": (0, 1)}
    return Experiment(**{**values, **changes})


def record(
    mixed: Numbers,
    trained: Numbers,
    *,
    validation: tuple[Numbers, Numbers] | None = None,
    losses: tuple[Numbers, Numbers] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A stored cell: test accuracies, validation accuracies and validation losses by client (mixed, trained)."""
    losses = losses or ((1.0,) * len(mixed), (1.0,) * len(mixed))

    def split(accuracies: tuple[Numbers, Numbers]) -> dict[str, Any]:
        return {
            when: {"accuracy": list(own), "task_accuracy": list(own), "loss": list(loss)}
            for when, own, loss in zip(("mixed", "trained"), accuracies, losses, strict=True)
        }

    both = {"test": split((mixed, trained)), "validation": split(validation or (mixed, trained))}
    return {**both, "graph": {}, "history": {}, **more}


def filled(store: Store, experiment: Experiment, *records: dict[str, Any]) -> Results:
    """The results of an experiment whose cells, in their order, have these numbers."""
    cells: list[Cell] = list(experiment.cells(lambda _, method: method.candidates[0]))
    for cell, numbers in zip(cells, records, strict=True):
        store.put(cell, numbers)
    return Results(experiment, store)


def without_times(store: Store) -> dict[str, Any]:
    """All that must be the same when cells are run again."""
    return {key: {k: v for k, v in cell.items() if k != "seconds"} for key, cell in store.records.items()}
