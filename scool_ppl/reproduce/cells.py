"""One cell of an experiment: a fit, and the numbers that tables and figures are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scool_ppl.base.codec import Row
from scool_ppl.base.describe import versions
from scool_ppl.base.files import file_sha256
from scool_ppl.base.machine import threads
from scool_ppl.data.federation import Federation
from scool_ppl.data.specs import load_federation
from scool_ppl.em.em import EM
from scool_ppl.em.state import EMInfo, EMState
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.reproduce.compact import compact, trust
from scool_ppl.reproduce.experiment import Cell
from scool_ppl.runs.rows import number, total_seconds
from scool_ppl.train.contract import AnyClients, Evaluation
from scool_ppl.train.hostile import HostileClients
from scool_ppl.zoo.load import model_path

_COPIED = ("_models", "_experiments")
"""Folders that an installed package has and a checkout keeps beside it."""


def run_cell(cell: Cell, data_root: Path | None = None, device: str = "cpu", download: bool = False) -> Row:
    """Fit the cell's model, on one thread so that the numbers do not depend on how many cells run at once.

    test, validation: the networks after mixing ("mixed") and before it ("trained") by client, and of a portfolio what it
    deploys ("deployed"); validation is None where the federation has none.
    """
    with threads(1):
        federation = _federation(cell.federation, cell.seed, data_root, download)
        em = _em(cell, federation, device)
        if cell.compact:
            return {**compact(em, cell.settings.rounds), **_origin(cell, em)}
        graphs: dict[int, CooperationGraph] = {}
        last: list[EMInfo] = []

        def keep(state: EMState, info: EMInfo, row: Row) -> None:
            last[:] = [info]
            if state.round in cell.graphs:
                graphs[state.round] = em.graph(state)

        fit = em.fit(cell.settings.rounds, progress=False, callbacks=[keep])
        tested, held_back = {"mixed": fit.evaluation, "trained": fit.trained}, None
        if all(len(rows) for rows in federation.validation):
            after = em.clients.evaluate(last[0].trained, "validation")
            held_back = {"mixed": em.evaluate(fit.state, "validation"), "trained": after}
        if fit.deployment.chosen:
            tested["deployed"] = fit.deployed
            if held_back is not None:
                held_back["deployed"] = fit.deployment.evaluate(em.clients, "validation")
        kept = {"predictions": _predictions(em, fit.state)} if cell.predictions else {}
    return {
        **kept,
        **trust(fit.graph, em.clients),
        "test": _by_client(tested, em.clients),
        "validation": None if held_back is None else _by_client(held_back, em.clients),
        "graph": fit.history[-1]["graph"],
        **_spent(fit.history[-1]),
        "history": _curves(fit.history),
        "graphs": _graphs(graphs, federation) if graphs else None,
        "seconds": total_seconds(fit.history),
        **_origin(cell, em),
        "versions": versions(),
    }


def _spent(row: Row) -> Row:
    """The epsilon of the private client who has revealed most; None where that has no bound, nothing of others."""
    if "epsilon" not in row:
        return {}
    each = [*row["epsilon"].values()]
    return {"epsilon": None if None in each else round(max(each), 4)}


def _origin(cell: Cell, em: EM) -> Row:
    """On what data and by what code the numbers were made."""
    return {
        "executor": em.clients.executor_name,
        "data": em.clients.federation.fingerprint[:12],
        "code": {"library": _library(), "model": file_sha256(model_path(cell.model))[:12]},
    }


def _em(cell: Cell, federation: Federation, device: str) -> EM:
    settings = replace(cell.settings, device=device)
    clients: AnyClients = settings.clients(federation)
    if cell.column.attack is not None:
        clients = HostileClients(clients, cell.column.attack, share=cell.column.share, seed=cell.seed)
    model = settings.model(cell.model, federation, **cell.hyperparameters)
    return EM(model, clients, settings.schedule, seed=cell.seed)


@lru_cache(maxsize=1)
def _federation(spec: str, seed: int, data_root: Path | None, download: bool) -> Federation:
    """The last federation is kept: neighbouring cells have the same."""
    return load_federation(spec, seed=seed, data_root=data_root, download=download)


def _graphs(graphs: Mapping[int, CooperationGraph], federation: Federation) -> Row:
    """The graphs of some rounds, and what is known of the clients."""
    return {
        "kind": next(iter(graphs.values())).kind,
        "weights": {str(round): _rounded(graph.dense(), 3) for round, graph in graphs.items()},
        "groups": federation.groups,
        "truth": None if federation.truth is None else _rounded(federation.truth, 3),
        "classes": [federation.classes(client).tolist() for client in range(federation.num_clients)],
    }


def _predictions(em: EM, state: EMState) -> Row:
    """Inputs, targets and outputs of every client's test rows: what it deploys after the last mixing."""
    federation = em.clients.federation
    predictor = em.predictor(state)
    outputs, mask = em.clients.predict(predictor.networks, "test", predictor.mixture)
    return {
        "inputs": [_rounded(federation.inputs[rows].flatten(1), 4) for rows in federation.test],
        "targets": [_rounded(federation.targets[rows].double(), 4) for rows in federation.test],
        "outputs": [_rounded(own[there].double().flatten(1), 4) for own, there in zip(outputs, mask, strict=True)],
        "train_inputs": [_rounded(federation.inputs[rows].flatten(1), 4) for rows in federation.train],
        "train_targets": [_rounded(federation.targets[rows].double(), 4) for rows in federation.train],
    }


def _by_client(evaluations: Mapping[str, Evaluation], clients: AnyClients) -> Row:
    """Numbers by client of several networks; of honest clients only, where some are hostile."""
    hostile = ~clients.honest if isinstance(clients, HostileClients) else torch.zeros(clients.num_clients).bool()
    return {
        when: {
            name: _rounded(values.masked_fill(hostile, torch.nan), 4)
            for name, values in zip(("accuracy", "task_accuracy", "loss"), evaluation, strict=True)
        }
        for when, evaluation in evaluations.items()
    }


def _curves(history: Sequence[Row]) -> Row:
    """What happened over the rounds, a list each."""
    paths = {
        "round": ("round",),
        "accuracy": ("accuracy", "mean"),
        "l1": ("graph", "l1"),
        "received": ("bytes", "received"),
    }
    curves: Row = {name: [] for name in paths}
    for row in history:
        for name, path in paths.items():
            value = row
            for step in path:
                value = value[step]
            curves[name].append(float(f"{value:.6g}") if isinstance(value, float) else value)
    return curves


@lru_cache(maxsize=1)
def _library() -> str:
    """The beginning of a SHA-256 of the library's files: which code made the numbers, whatever its version says."""
    folder = Path(__file__).resolve().parents[1]
    own = (path for path in sorted(folder.rglob("*.py")) if path.relative_to(folder).parts[0] not in _COPIED)
    return file_sha256(*own)[:12]


def _rounded(values: Tensor, digits: int) -> Any:
    """Nested lists of numbers, None where they are not finite."""
    if values.dim() > 1:
        return [_rounded(row, digits) for row in values]
    found = (number(float(value)) for value in values)
    return [None if value is None else round(value, digits) for value in found]
