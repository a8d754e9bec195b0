"""The report of a run, from the files of its folder."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scool_ppl.base.codec import Row
from scool_ppl.data.federation import MANY as LARGEST
from scool_ppl.errors import InputError
from scool_ppl.graph.belief import BELIEVED_ABOVE
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.plots.graph.layout import block_places, layout
from scool_ppl.plots.matrix import weights_order
from scool_ppl.plots.style import Array, colours, short_names
from scool_ppl.report import components as seats
from scool_ppl.report.clients import Clients, read_clients
from scool_ppl.report.curves import history_svg
from scool_ppl.report.links import Links, between_blocks, links_of, matrices, packed, strongest
from scool_ppl.report.page import as_data, network_script, render, script
from scool_ppl.report.words import run_in_words
from scool_ppl.runs.folder import SUMMARY, Run
from scool_ppl.runs.pictures import baseline_of
from scool_ppl.runs.rows import total_seconds

MANY = 150
"""More clients than these are shown as blocks first; more than LARGEST as blocks only, and in a table to search."""
MOST_BLOCKS = 150
"""So many blocks of more than LARGEST clients are drawn."""
SHOWN = ("client", "block", "component", "group", "train", "accuracy", "accuracy_local", "gain_over_local")
"""Columns of clients.csv that are shown of more than LARGEST clients."""
DOWN = np.array([1, -1])
"""A page's second axis points down."""


def run_page(run: Run) -> str:
    """The page of a run that has ended."""
    network = network_script()
    run.check_finished()
    graph, history = run.graph, run.history
    summary, asked = run.read_json(SUMMARY), run.settings
    links, frames = _links(run, graph)
    blocks = groups_of(graph)
    components = seats.components_of(graph)
    clients = read_clients(run, graph, blocks, None if components is None else components.most)
    many = graph.num_clients > LARGEST
    data: Row = {
        "many": many,
        "probabilities": graph.kind == "edges" and not links.is_best,
        "score": str(summary.get("score", "accuracy")),
        "believed": BELIEVED_ABOVE[graph.kind],
        "kind": graph.kind,
        "palette": colours(min(40, max(1, int((np.bincount(blocks) > 1).sum())))),
        "clients": _nodes(graph, clients, links, blocks),
        "edges": packed(links) if many else strongest(links),
        "startWithBlocks": graph.num_clients > MANY and int(blocks.max()) + 1 < graph.num_clients // 2,
        "matrix": matrices(frames, weights_order(graph), links.highest),
        "colours": _viridis(),
    }
    places: Array | None = None
    if many:
        several = np.bincount(blocks)
        shown = max(1, min(MOST_BLOCKS, int((several > 1).sum())))
        block_at = block_places(several[:shown]) * DOWN
    else:
        by_name = layout(graph)
        places = np.array([by_name[name] for name in graph.names]) * DOWN
        data["clients"] |= {"label": short_names(graph.names), **_axes(places)}
        block_at = np.stack([places[blocks == block].mean(0) for block in range(int(blocks.max()) + 1)])
    data["blocks"] = _block_nodes(graph, clients, links, blocks, block_at)
    data["components"] = None if components is None else seats.shown(components, places)
    return render(
        "run.html",
        [network, script("search.js" if many else "table.js"), script("matrix.js"), script("graph.js")],
        title=_title(asked, summary, run),
        words=run_in_words(summary, clients, links, blocks, components),
        tiles=_tiles(summary, clients, links, blocks),
        data=as_data(data),
        kind=graph.kind,
        best=links.is_best,
        has_intervals=links.low is not None,
        frames=list(frames),
        last=len(frames) - 1 - ("truth" in frames),
        many=many,
        blocks=int(blocks.max()) + 1,
        shown_blocks=len(block_at),
        left_out=[name for name in clients.columns if many and name not in SHOWN],
        bins=data["matrix"]["size"],
        num_clients=graph.num_clients,
        component_heads=seats.HEADS,
        component_rows=[] if components is None else seats.rows(components, clients),
        columns=list(clients.columns),
        rows=[] if many else _rows(clients),
        curves=history_svg(history, baseline_of(summary, run.path / SUMMARY)) if history else "",
        asked=_asked(asked),
        seconds=summary.get("total_seconds")
        or (total_seconds(history) if history and "seconds" in history[-1] else {}),
        versions=summary.get("versions") or asked.get("versions") or {},
    )


def _links(run: Run, graph: CooperationGraph) -> tuple[Links, dict[str, tuple[Peers, Array]]]:
    """The links of the last round; and the weights of all kept rounds, and of the truth where it is known, by name."""
    kept, truth = run.weights()
    read = {round: Peers.read(weights) for round, weights in sorted(kept.items())}
    frames = {f"round {round}": (peers, weights.double().numpy()) for round, (peers, weights) in read.items()}
    peers, last = frames[f"round {max(read)}"]
    if len(last) != graph.num_clients or not (peers.is_table or last.shape[1] == graph.num_clients):
        raise InputError(
            f"{run.path} has weights of shape {last.shape} and {graph.num_clients} clients; repeat the run"
        )
    if truth is not None:
        frames["truth"] = (Peers.everybody(len(truth), includes_self=True), truth.double().numpy())
    ends = run.intervals()
    intervals = None if ends is None else (ends[0].double().numpy(), ends[1].double().numpy())
    return links_of(graph.kind, last, intervals, peers), frames


def _rows(clients: Clients) -> list[list[Any]]:
    """The table of clients: texts as they are, numbers as they are shown and sorted by."""

    def cell(value: float | str | None) -> Any:
        if not isinstance(value, float):
            return value
        return (f"{value:.0f}" if value == int(value) else f"{value:.3f}"), value

    return [[cell(value) for value in row] for row in zip(*clients.columns.values(), strict=True)]


def groups_of(graph: CooperationGraph) -> NDArray[np.int64]:
    """The connected blocks (K,) as they are numbered here: those of several clients first, each by first appearance."""
    pieces = graph.connected_blocks().numpy()
    rank = np.argsort(np.argsort(np.bincount(pieces) == 1, kind="stable"), kind="stable")
    found: NDArray[np.int64] = rank[pieces]
    return found


def _title(asked: Row, summary: Row, run: Run) -> str:
    model = str(asked.get("model") or summary.get("model") or run.path.name)
    federation = asked.get("federation") or summary.get("federation")
    return f"{model} on {federation}" if federation else model


def _asked(asked: Row) -> list[tuple[str, list[tuple[str, Any]]]]:
    """What run.json says was asked, as tables; the digests that only a resume needs are left out."""
    plain = {name: asked[name] for name in ("model", "federation", "baseline") if name in asked}
    tables = {"the run": plain, "hyperparameters": asked.get("hyperparameters"), "settings": asked.get("settings")}
    return [
        (name, [(key, "default" if value is None else value) for key, value in table.items()])
        for name, table in tables.items()
        if isinstance(table, dict) and table
    ]


def _tiles(summary: Row, clients: Clients, links: Links, blocks: NDArray[np.int64]) -> list[tuple[str, str]]:
    """The numbers at the top, each with what it is."""
    score = str(summary.get("score", "accuracy"))
    told = [
        (f"{len(blocks)}", "clients"),
        (f"{int((np.bincount(blocks) > 1).sum())}", "blocks"),
        (f"{int(links.believed.sum()):,}", "links"),
    ]
    means = {score: "accuracy", f"{score} alone": "accuracy_local"}
    for name, column in means.items():
        known = [value for value in clients.numbers(column) if value is not None]
        if known:
            told.append((f"{np.mean(known):.3f}", f"mean {name}"))
    gains = [gain for gain in clients.gains if gain is not None]
    if gains:
        told += [
            (f"{np.mean(gains):+.3f}", "mean gain"),
            (f"{sum(g > 0 for g in gains)} of {len(gains)}", "clients gain"),
        ]
    return told


def _nodes(graph: CooperationGraph, clients: Clients, links: Links, blocks: NDArray[np.int64]) -> dict[str, list[Any]]:
    """Columns of the clients: what is shown of each."""
    return {
        "name": list(graph.names),
        "block": blocks.tolist(),
        "component": clients.columns.get("component", [None] * graph.num_clients),
        "group": [None] * graph.num_clients if graph.groups is None else [int(group) for group in graph.groups],
        "samples": clients.numbers("train"),
        "with": _short(clients.numbers("accuracy")),
        "alone": _short(clients.numbers("accuracy_local")),
        "gain": _short(clients.gains),
        "learns": links.learns.tolist(),
        "teaches": links.teaches.tolist(),
    }


def _axes(places: Array) -> dict[str, list[float]]:
    return {"x": places[:, 0].round(3).tolist(), "y": places[:, 1].round(3).tolist()}


def _block_nodes(
    graph: CooperationGraph, clients: Clients, links: Links, blocks: NDArray[np.int64], places: Array
) -> dict[str, Any]:
    """Columns of the blocks that have a place, and the mean weights between them; `size` is of all blocks."""
    count = len(places)
    density, strength = (between_blocks(links, part, blocks, count) for part in (links.weights, links.strength))
    members = [np.flatnonzero(blocks == block) for block in range(count)]

    def mean(name: str) -> list[float | None]:
        values = np.array([np.nan if value is None else value for value in clients.numbers(name)])
        known = [values[here][np.isfinite(values[here])] for here in members]
        return _short([float(some.mean()) if len(some) else None for some in known])

    to, source = np.nonzero((strength > 0.005) & ~np.eye(count, dtype=bool))
    return {
        "size": np.bincount(blocks).tolist(),
        "members": [[graph.names[client] for client in here[:12]] for here in members],
        "inside": density.diagonal().round(3).tolist(),
        "with": mean("accuracy"),
        "alone": mean("accuracy_local"),
        "gain": mean("gain_over_local"),
        **_axes(places),
        "edges": {
            "from": source.tolist(),
            "to": to.tolist(),
            "w": density[to, source].round(3).tolist(),
            **({} if links.kind == "edges" else {"strength": strength[to, source].round(3).tolist()}),
        },
    }


def _short(values: list[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]


def _viridis() -> list[list[int]]:
    """The colours of the matrix, from 0 to the heaviest."""
    import matplotlib

    colours: Array = matplotlib.colormaps["viridis"](np.linspace(0, 1, 64))
    return [[int(255 * part) for part in colour[:3]] for colour in colours]
