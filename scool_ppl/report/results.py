"""The report of an experiment, from the result store that `scool reproduce` fills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scool_ppl.base.describe import versions
from scool_ppl.errors import InputError, RunError
from scool_ppl.report.page import picture, render, script
from scool_ppl.reproduce.catalogue import experiment_names, load_experiment
from scool_ppl.reproduce.experiment import SCALES
from scool_ppl.reproduce.render import main_table, overview
from scool_ppl.reproduce.results import Results
from scool_ppl.reproduce.store import Store


def results_page(path: Path) -> str:
    """The page of a store NAME-SCALE.json: the experiment's table, with its figures where they are beside it."""
    results = results_of(path)
    experiment = results.experiment
    try:
        heads, rows = overview(results) if experiment.compact else main_table(results)
    except RunError as error:  # of a store in which cells are missing
        raise InputError(str(error)) from error
    figures = sorted(path.parent.glob(f"{path.stem}-*.png"))
    return render(
        "table.html",
        [script("table.js")],
        title=experiment.title,
        words=[
            f"{len(experiment.methods)} methods on {len(experiment.columns)} "
            f"federation{'s' * (len(experiment.columns) != 1)}, {len(experiment.seeds)} "
            f"seed{'s' * (len(experiment.seeds) != 1)}: {len(results.store.records)} runs are in the store."
        ],
        heads=heads,
        rows=[[row[0], *((text, _number(text)) for text in row[1:])] for row in rows],
        note=f"Mean over clients{', ± standard deviation over seeds' if len(experiment.seeds) > 1 else ''}.",
        figures=[(figure.stem.removeprefix(f"{path.stem}-"), picture(figure)) for figure in figures],
        more=[],
        asked=[("federations", [(column.label, column.federation) for column in experiment.columns])],
        versions=versions(),
    )


def results_of(path: Path) -> Results:
    """The cells of a store, whose name says of which experiment and at which scale."""
    name, _, scale = path.stem.rpartition("-")
    if name not in experiment_names() or scale not in SCALES:
        raise InputError(
            f"'{path}' is not named EXPERIMENT-SCALE.json, of which no experiment would be known; expected the store of "
            "one that `scool reproduce` lists"
        )
    return Results(load_experiment(name, scale), Store(path))


def _number(text: str) -> float | None:
    """The number that a cell begins with, to sort by."""
    try:
        return float(text.split()[0].rstrip("%").replace("−", "-"))
    except (ValueError, IndexError):
        return None


