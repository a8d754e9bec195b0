"""Runs that take milliseconds: on noise, stopped where a test says so, and folders with rounds that were never run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from scool_ppl.base.codec import Row
from scool_ppl.em.em import EM
from scool_ppl.em.model import Schedule
from scool_ppl.em.state import EMState
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.runs.folder import Run
from scool_ppl.zoo.load import load_model
from tests.helpers.small import brief, clients


class StoppedHereError(Exception):
    """What a callback raises to stop a run."""


def stop_after(round: int) -> Callable[[EMState, object, Row], None]:
    """A callback that stops a run when this round, counted from 1, is done."""

    def callback(state: EMState, info: object, row: Row) -> None:
        if state.round == round:
            raise StoppedHereError

    return callback


def driver(model: str = "ring", seed: int = 1, **options: Any) -> EM:
    """An EM on noise, in float64; `options` are those of the clients, and `schedule`."""
    schedule = options.pop("schedule", Schedule(local_steps=2))
    whose = clients(**options)
    built = brief(load_model(model, whose.num_clients, federation=whose.federation))
    return EM(built, whose, schedule, seed=seed)


def timeless(rows: list[Row]) -> list[Row]:
    """Rows of a history without their times, the only part of them that differs between two equal runs."""
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def graph(round: int, num_clients: int = 3) -> CooperationGraph:
    """Weights [receiver, sender] that tell round and direction: client 0 learns from 1 but not the other way round."""
    weights = torch.zeros(num_clients, num_clients, dtype=torch.float64)
    weights[0, 1] = round / 100
    return CooperationGraph(weights, tuple("abcdefgh"[:num_clients]), Peers.everybody(num_clients))


def row(round: int) -> dict[str, Any]:
    """A row of the history that tells its round."""
    spread = {"mean": 0.5 + round / 100, "std": 0.1, "worst10": 0.3}
    return {
        "round": round,
        "elbo": -10.0 / round,
        "loss": 1.0 / round,
        "accuracy": spread,
        "accuracy_trained": spread,
        "task_accuracy": spread,
        "graph": {"l1": None, "auc": None, "ari": None},
    }


def finished(path: Path, rounds: int, *, pictures: bool = False, **options: Any) -> Run:
    """The folder of a run of so many rounds; its pictures are drawn only where they are wanted: they take a second."""
    run = Run.create(path, {"model": "mine"})
    for round in range(1, rounds + 1):
        run.record(row(round), graph(round))
    if not pictures:
        run.draw = list  # type: ignore[method-assign]
    run.finish({**row(rounds), "gain_over_local": 0.2}, **options)
    return run
