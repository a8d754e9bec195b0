"""Several models on the same clients, initialisation and batches, kept fit by fit, so that a comparison can go on."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from scool_ppl.base.codec import Row
from scool_ppl.base.describe import versions
from scool_ppl.base.files import csv_text, file_sha256
from scool_ppl.base.progress import announced
from scool_ppl.data.federation import Federation
from scool_ppl.em.transfer import Learned
from scool_ppl.errors import InputError
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.runs.folder import MARK, Run
from scool_ppl.runs.store import Store, as_stored
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.workbench import Workbench
from scool_ppl.zoo.load import as_typed, model_path

CELLS, GRAPHS = "cells.json", "graphs"

Choice = tuple[str | os.PathLike[str], Row]
"""A model and the hyperparameters chosen for it."""


class Arm(NamedTuple):
    """What is compared: a model, the hyperparameters chosen for it, and what its prior begins with, if it was learned."""

    model: str | os.PathLike[str]
    choices: Row
    learned: Learned | None = None


class Outcome(NamedTuple):
    """What is kept of one fit: its summary, a row a round, the graph, and a row a client."""

    name: str
    summary: Row
    history: list[Row]
    graph: CooperationGraph
    clients: list[Row]


class Cell(NamedTuple):
    """One fit of a comparison, as it is asked for."""

    name: str
    seed: int
    arm: Arm
    settings: Settings
    data: str

    @property
    def key(self) -> str:
        return f"{self.name} | seed {self.seed}"

    @property
    def request(self) -> Row:
        return {**_asked(self.arm), "settings": asdict(self.settings), "data": self.data}

    @property
    def graph(self) -> str:
        """The name of its graph's file."""
        return f"{re.sub(r'[^A-Za-z0-9_.=-]+', '-', self.name)}-seed-{self.seed}.graphml"


def compare(
    models: Sequence[Choice | Arm],
    make_federation: Callable[[int], Federation],
    settings: Settings,
    seeds: Sequence[int],
    *,
    networks_seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> list[list[Outcome]]:
    """Every model on the same clients, initialisation and batches, for each seed: results[seed][model].

    networks_seed: of networks, batches and inference, the same for all; the seeds are of federations alone then.
    out: a folder that keeps every fit as soon as it is done, and in the end the tables and the figure. The same call
    goes on with what is missing there; what another call has begun is refused, or removed with `overwrite`.
    """
    arms = [Arm(*one) for one in models]
    names = labels(arms)
    kept = _Kept(None)
    results: list[list[Outcome]] = []
    with ExitStack() as held:
        for place, seed in enumerate(seeds):
            seeded = replace(settings, seed=seed if networks_seed is None else networks_seed)
            bench = Workbench(make_federation(seed), seeded, progress=progress)
            for arm in arms:
                bench.em(
                    arm.model, arm.learned, **arm.choices
                )  # one that cannot be built is refused before the others are trained
            if place == 0 and out is not None:
                request = _request(arms, names, bench.data.spec, settings, seeds, networks_seed)
                folder = _opened(Path(out), request, overwrite)
                held.enter_context(folder.locked())
                kept = _Kept(folder)
            results.append(_one_seed(bench, seed, list(zip(names, arms, strict=True)), kept))
        if kept.folder is not None:
            _write(results, kept.folder)
    return results


def _one_seed(bench: Workbench, seed: int, arms: Sequence[tuple[str, Arm]], kept: _Kept) -> list[Outcome]:
    """Every model under one seed: kept already, or fitted now."""
    data, outcomes = bench.data.fingerprint[:12], []
    for number, (name, arm) in enumerate(arms, start=1):
        cell = Cell(name, seed, arm, bench.settings, data)
        outcome = kept.get(cell)
        if outcome is None:
            announced(f"{cell.key}: {number} of {len(arms)} models", enabled=bench.progress)
            outcome = _fitted(cell, bench)
            kept.put(cell, outcome)
        outcomes.append(outcome)
    return outcomes


def _fitted(cell: Cell, bench: Workbench) -> Outcome:
    result = bench.fit(*cell.arm, baseline=True)
    summary = {**result.summary, "model": cell.name, "seed": cell.seed}
    return Outcome(cell.name, summary, result.fit.history, result.fit.graph, [*result.clients])


class _Kept:
    """The fits that a folder holds; nothing is kept where there is no folder."""

    def __init__(self, folder: Run | None) -> None:
        self.folder = folder
        self.store = None if folder is None else Store(folder.path / CELLS)

    def get(self, cell: Cell) -> Outcome | None:
        """A fit that is there already, with its graph."""
        if self.folder is None or self.store is None:
            return None
        record, path = self.store.get(cell), self.folder.path / GRAPHS / cell.graph
        if record is None or not path.is_file():
            return None
        return Outcome(cell.name, record["summary"], record["history"], CooperationGraph.load(path), record["clients"])

    def put(self, cell: Cell, outcome: Outcome) -> None:
        """The graph first: a fit that the store knows is complete."""
        if self.folder is None or self.store is None:
            return
        graphs = self.folder.path / GRAPHS
        graphs.mkdir(exist_ok=True)
        outcome.graph.save(graphs / cell.graph)
        kept = {"summary": outcome.summary, "history": outcome.history, "clients": outcome.clients}
        self.store.put(cell, kept)


def labels(models: Sequence[Choice | Arm]) -> list[str]:
    """What each is called in tables and figures: its name, with its hyperparameters where the name comes twice.

    Models that begin with something learned are called so.
    """
    arms = [Arm(*one) for one in models]
    stems = [_stem(arm) for arm in arms]
    full = [as_typed(stem, arm.choices) for stem, arm in zip(stems, arms, strict=True)]
    if twice := {name for name in full if full.count(name) > 1}:
        raise InputError(f"{' and '.join(sorted(twice))} was given twice, expected models that differ; remove one")
    return [name if stems.count(stem) > 1 else stem for stem, name in zip(stems, full, strict=True)]


def _stem(arm: Arm) -> str:
    learned = "" if arm.learned is None else " frozen" if arm.learned.frozen else " transferred"
    return f"{Path(arm.model).stem}{learned}"


def _asked(arm: Arm) -> Row:
    model, learned = arm.model, arm.learned
    asked = {"model": os.fspath(model), "model_sha256": file_sha256(model_path(model)), "hyperparameters": arm.choices}
    return asked if learned is None else {**asked, "learned": learned.request}


def _request(
    arms: Sequence[Arm],
    names: Sequence[str],
    federation: str,
    settings: Settings,
    seeds: Sequence[int],
    networks_seed: int | None,
) -> Row:
    return {
        "comparison": list(names),
        "models": [_asked(arm) for arm in arms],
        "federation": federation,
        "settings": asdict(settings),
        "seeds": list(seeds),
        "networks_seed": networks_seed,
        "versions": versions(),
    }


def _opened(path: Path, request: Row, overwrite: bool) -> Run:
    """A new folder, or that of the same comparison, to go on with."""
    if overwrite or not (path / MARK).is_file() or "comparison" not in Run.open(path).settings:
        return Run.create(path, request, overwrite=overwrite)
    folder = Run.open(path)
    there, asked = folder.settings, as_stored(request)
    for name in ("federation", "comparison", "models", "settings", "seeds", "networks_seed"):
        if there.get(name) != asked[name]:
            found, expected = _difference(there.get(name), asked[name])
            raise InputError(
                f"'{path}' holds a comparison with the {name} {found}, asked for were {expected}; repeat that request to "
                "go on with it, choose another --out, or replace it by --overwrite"
            )
    return folder


def _difference(found: object, asked: object) -> tuple[str, str]:
    """Both as short texts; of tables only what differs."""
    if isinstance(found, dict) and isinstance(asked, dict):
        names = [name for name in asked if found.get(name) != asked[name]]
        return _short({name: found.get(name) for name in names}), _short({name: asked[name] for name in names})
    return _short(found), _short(asked)


def _short(value: object) -> str:
    if isinstance(value, dict):
        text = ", ".join(f"{name}={item}" for name, item in value.items())
    else:
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 120 else f"{text[:120]}..."


def _write(results: Sequence[Sequence[Outcome]], folder: Run) -> None:
    """comparison.json, .md, .tex, .csv and .png; of each model and seed clients.csv has clients, rounds.csv rounds."""
    from scool_ppl.plots.comparison import draw_comparison
    from scool_ppl.plots.style import save_figure
    from scool_ppl.workbench.latex import latex
    from scool_ppl.workbench.tables import columns_of, comparison, markdown, mean_history, round_lines

    rows = comparison(results)
    runs = [[outcome.summary for outcome in one_seed] for one_seed in results]
    folder.write_json("comparison.json", {"table": rows, "runs": runs, "versions": versions()})
    folder.write_text("comparison.md", markdown(rows, columns_of(rows), len(results)))
    folder.write_text("comparison.csv", csv_text(comparison_lines(rows, len(results))))
    folder.write_text("comparison.tex", latex(results))
    clients = [
        {"model": outcome.name, "seed": str(outcome.summary["seed"]), **row}
        for one_seed in results
        for outcome in one_seed
        for row in outcome.clients
    ]
    folder.write_text("clients.csv", csv_text(clients))
    folder.write_text("rounds.csv", csv_text(round_lines(results)))
    seeds = zip(*results, strict=True)
    curves = {fits[0].name: (fits[0].graph, mean_history([fit.history for fit in fits])) for fits in seeds}
    figure = draw_comparison(curves)
    save_figure(figure, folder.path / "comparison.png")


def comparison_lines(rows: Sequence[Row], seeds: int) -> list[Row]:
    """The rows of a comparison without nesting: every column's mean and, beside it, its standard deviation over seeds."""
    lines = []
    for row in rows:
        line: Row = {"model": row["model"], "score": row["score"], "seeds": seeds}
        for column, value in row.items():
            if column not in line:
                line[column] = None if value is None else value["mean"]
                line[f"{column}, standard deviation"] = None if value is None else value["std"]
        lines.append(line)
    return lines
