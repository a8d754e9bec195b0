"""The report of an experiment, from the result store that `scool reproduce` fills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scool_ppl.base.statistics import over_seeds
from scool_ppl.errors import InputError, RunError
from scool_ppl.report.page import picture, render, script
from scool_ppl.reproduce.catalogue import experiment_names, load_experiment
from scool_ppl.reproduce.experiment import SCALES
from scool_ppl.reproduce.render import first_table
from scool_ppl.reproduce.results import Results
from scool_ppl.runs.store import Store


def results_page(path: Path) -> str:
    """The page of a store NAME-SCALE.json: the experiment's table, with its figures where they are beside it."""
    results = results_of(path)
    experiment = results.experiment
    try:
        heads, rows = first_table(results)
    except RunError as error:  # of a store in which cells are missing
        raise InputError(str(error)) from error
    figures = sorted(path.parent.glob(f"{path.stem}-*.png"))
    return render(
        "table.html",
        [script("table.js")],
        title=experiment.title,
        words=list(results_in_words(results, heads, rows)),
        heads=heads,
        rows=[[row[0], *((text, _number(text)) for text in row[1:])] for row in rows],
        note=f"Mean over clients{', ± standard deviation over seeds' if len(experiment.seeds) > 1 else ''}.",
        figures=[(figure.stem.removeprefix(f"{path.stem}-"), picture(figure)) for figure in figures],
        more=[],
        asked=[("federations", [(column.label, column.federation) for column in experiment.columns])],
        versions={},
    )


def results_in_words(results: Results, heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Sentences: what was run, and who is best where; of a compact experiment, who regrets least over all federations."""
    experiment = results.experiment
    counts = {"method": experiment.methods, "federation": experiment.columns, "seed": experiment.seeds}
    told = ", ".join(f"{len(some)} {name}{'s' * (len(some) != 1)}" for name, some in counts.items())
    yield f"{told}; {len(results.store.records)} runs are in the store."
    if experiment.compact:
        known = [(number, row[0]) for row in rows if (number := _number(row[1])) is not None]
        if known:
            yield f"Over all federations {min(known)[1]} is lowest in {heads[1]}: {min(known)[0]:g}."
    elif "accuracy" in experiment.measures:
        for column in experiment.columns:
            values = ((results.values(column, method, "accuracy"), method.label) for method in experiment.methods)
            means = [(over_seeds(found).mean, label) for found, label in values if found]
            if means:
                yield f"On {column.label}, {max(means)[1]} has the highest mean accuracy, {max(means)[0]:.3f}."


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
