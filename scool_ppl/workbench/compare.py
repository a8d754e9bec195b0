"""Several models on the same clients, initialisation and batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from scool_ppl.base.codec import Row
from scool_ppl.base.describe import versions
from scool_ppl.data.federation import Federation
from scool_ppl.errors import InputError
from scool_ppl.runs.folder import Run
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.workbench import Result, Workbench

Choice = tuple[str | os.PathLike[str], Row]
"""A model and the hyperparameters chosen for it."""


def compare(
    models: Sequence[Choice],
    make_federation: Callable[[int], Federation],
    settings: Settings,
    seeds: Sequence[int],
    *,
    progress: bool = True,
) -> list[list[Result]]:
    """Every model on the same clients, initialisation and batches, for each seed: results[seed][model]."""
    names = labels(models)
    results = []
    for seed in seeds:
        bench = Workbench(make_federation(seed), replace(settings, seed=seed), progress=progress)
        for model, choices in models:
            bench.em(model, **choices)  # one that cannot be built is refused before the others are trained
        fitted = (bench.fit(model, choices, baseline=True) for model, choices in models)
        results.append(
            [
                result._replace(name=name, summary={**result.summary, "model": name})
                for result, name in zip(fitted, names, strict=True)
            ]
        )
    return results


def labels(models: Sequence[Choice]) -> list[str]:
    """What each is called in tables and figures: its name, with its hyperparameters where the name comes twice."""
    stems = [Path(model).stem for model, _ in models]
    full = [
        " ".join([stem, *(f"{key}={value}" for key, value in choices.items())])
        for stem, (_, choices) in zip(stems, models, strict=True)
    ]
    if twice := {name for name in full if full.count(name) > 1}:
        raise InputError(f"{' and '.join(sorted(twice))} was given twice, expected models that differ; remove one")
    return [name if stems.count(stem) > 1 else stem for stem, name in zip(stems, full, strict=True)]


def save_comparison(results: Sequence[Sequence[Result]], out: str | os.PathLike[str]) -> list[Row]:
    """Write comparison.json, comparison.md and comparison.png into a new folder; returns the rows of the table."""
    from scool_ppl.plots.comparison import draw_comparison
    from scool_ppl.plots.style import save_figure
    from scool_ppl.workbench.tables import COLUMNS, comparison, markdown

    rows = comparison(results)
    first = results[0][0].summary
    folder = Run.create(out, {"comparison": [row["model"] for row in rows], "federation": first["federation"]})
    runs = [[result.summary for result in one_seed] for one_seed in results]
    folder.write_json("comparison.json", {"table": rows, "runs": runs, "versions": versions()})
    folder.write_text("comparison.md", markdown(rows, list(COLUMNS), len(results)))
    figure = draw_comparison({result.name: (result.fit.graph, result.fit.history) for result in results[0]})
    save_figure(figure, folder.path / "comparison.png")
    return rows
