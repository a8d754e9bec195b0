"""Folders of runs that were never run, to write reports of: groups of four, weights and intervals by hand."""

from __future__ import annotations

from pathlib import Path

import torch

from scool_ppl.base.codec import Row
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.runs.folder import Run
from tests.helpers.runs import row

HOSTILE = "</script><img src=x onerror=alert(1)>"
"""A name that a page must show and never obey."""

SHARES = torch.tensor([[1.0, 0.0, 0.0], [0.6, 0.4, 0.0], [0.3, 0.7, 0.0], [0.0, 0.0, 0.0]]).double()
"""How much four clients use three components."""


def cooperation(num_clients: int = 8, hostile: bool = False) -> CooperationGraph:
    """Client i learns from j of its group of four with 0.9 - (j mod 4) / 20, from others with 0.2."""
    place = torch.arange(num_clients)
    same = place[:, None] // 4 == place // 4
    weights = torch.where(same, 0.9 - (place % 4) / 20, 0.2).double().fill_diagonal_(0)
    names = [f"client {client}" for client in range(num_clients)]
    if hostile:
        names[1] = HOSTILE
    return CooperationGraph(
        weights,
        tuple(names),
        Peers.everybody(num_clients),
        memberships=torch.nn.functional.one_hot(place // 4).double(),
        groups=tuple((place // 4).tolist()),
        samples=10 + place,
        low=(weights - 0.05).clamp(min=0),
        high=(weights + 0.05).clamp(max=1),
    )


def clients_table(graph: CooperationGraph) -> str:
    """clients.csv: alone 0.5; together 0.6 for the even ones, 0.45 for the odd ones; client 2 has no test data."""
    lines = ["client,train,accuracy,accuracy_local,gain_over_local"]
    for place, name in enumerate(graph.names):
        together = 0.45 if place % 2 else 0.6
        numbers = ",," if place == 2 else f"{together},0.5,{together - 0.5:.2f}"
        lines.append(f'"{name}",{10 + place},{numbers}')
    return "\n".join(lines)


def folder(path: Path, graph: CooperationGraph, rounds: int = 2, **summary: object) -> Run:
    """The folder of a run of so many rounds that ended with this graph; in earlier rounds weights were smaller.

    The true graph are the edges above one half, unless the graph is a table.
    """
    settings: Row = {"rounds": rounds, "width": None}
    asked = {"model": "mine", "federation": "four:digits", "settings": settings, "versions": {"torch": "9.9"}}
    run = Run.create(path, asked)
    for round in range(1, rounds + 1):
        earlier = CooperationGraph(graph.weights * round / rounds, graph.names, graph.peers, graph.kind)
        seconds = {"train": 1.0, "look": 0.25}
        run.record({**row(round), "seconds": seconds}, graph if round == rounds else earlier)
    run.draw = list  # type: ignore[method-assign]
    truth = None if graph.peers.is_table else (graph.weights > 0.5).double()
    run.finish({**row(rounds), **summary}, truth=truth, clients=clients_table(graph))
    return run
