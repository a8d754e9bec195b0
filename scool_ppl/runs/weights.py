"""weights.npz of a run's folder: the graphs of its rounds as arrays and, of many clients, what is known of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from scool_ppl.base.files import opened_npz, write_npz
from scool_ppl.graph.candidates import Entries, Peers
from scool_ppl.graph.cooperation import CooperationGraph

FILE, GRAPH = "weights.npz", "graph.graphml"

FEW = 300
"""Clients of whom graph.graphml has every edge; of more, those that are believed: weights.npz has them all."""

Graphs = dict[int, Tensor | Entries]
"""By round: a matrix (K, K), or of many clients with few candidates each a table, see `Peers.kept`."""

_KNOWN = ("accuracy", "samples", "positions", "components")
"""Tensors of a graph with a row a client, besides its blocks and groups."""


def save(run: Path, graphs: Graphs, graph: CooperationGraph, truth: Tensor | None = None) -> None:
    """Write the graphs by round, of which `graph` is the last, and graph.graphml."""
    many = graph.num_clients > FEW
    arrays = {
        "rounds": np.array(sorted(graphs)),
        "names": np.array(graph.names),
        **_stacked([graphs[round] for round in sorted(graphs)]),
        **(_clients(graph) if many else {}),
    }
    if truth is not None:
        arrays["truth"] = truth.numpy()
    if graph.low is not None and graph.high is not None and "senders" not in arrays:
        ends = {"low": graph.low, "high": graph.high}
        arrays |= {name: graph.peers.dense(end).float().numpy() for name, end in ends.items()}
    graph.save(run / GRAPH, threshold=None if many else 0)
    write_npz(run / FILE, arrays, compressed=True)


def load(run: Path) -> tuple[Graphs, Tensor | None]:
    """The graphs by round, and the truth (K, K) where it is known."""
    with opened_npz(run / FILE, "repeat the run") as arrays:
        return _graphs(arrays), torch.from_numpy(arrays["truth"]) if "truth" in arrays else None


def intervals(run: Path) -> tuple[Tensor, Tensor] | None:
    """The ends of the credible intervals of the last graph's weights, (K, K) each; None where there are none."""
    with opened_npz(run / FILE, "repeat the run") as arrays:
        known = "low" in arrays and "high" in arrays
        return (torch.from_numpy(arrays["low"]), torch.from_numpy(arrays["high"])) if known else None


def last(run: Path) -> CooperationGraph:
    """The last graph: of few clients as graph.graphml has it, of more as weights.npz does, which is read much sooner."""
    with opened_npz(run / FILE, "repeat the run") as arrays:
        found = dict(arrays) if len(arrays["names"]) > FEW else {}
    if not found:
        return CooperationGraph.load(run / GRAPH)
    graphs = _graphs(found)
    peers, weights = Peers.read(graphs[max(graphs)])
    low, high = (peers.take(torch.from_numpy(found[end])) if end in found else None for end in ("low", "high"))
    if "kind" not in found:  # an earlier version wrote it
        return replace(CooperationGraph.load(run / GRAPH), peers=peers, weights=weights, low=low, high=high)
    return CooperationGraph(
        weights=weights,
        names=tuple(found["names"].tolist()),
        peers=peers,
        kind=found["kind"].item(),
        memberships=one_hot(torch.from_numpy(found["blocks"])).double(),
        blocks_are_final=True,
        groups=tuple(found["groups"].tolist()) if "groups" in found else None,
        low=low,
        high=high,
        **{name: torch.from_numpy(found[name]) for name in _KNOWN if name in found},
    )


def _clients(graph: CooperationGraph) -> dict[str, np.ndarray[Any, Any]]:
    """The kind of the graph, and what is known of each client."""
    known = {name: getattr(graph, name) for name in _KNOWN}
    arrays = {name: value.detach().cpu().numpy() for name, value in known.items() if value is not None}
    if graph.groups is not None:
        arrays["groups"] = np.array(graph.groups)
    return {"kind": np.array(graph.kind), "blocks": graph.blocks().numpy(), **arrays}


def _graphs(arrays: Mapping[str, Any]) -> Graphs:
    weights = torch.from_numpy(arrays["weights"])
    each: Iterable[Tensor | Entries] = weights
    if "senders" in arrays:
        each = map(Entries, weights, torch.from_numpy(arrays["senders"]))
    return dict(zip(arrays["rounds"].tolist(), each, strict=True))


def _stacked(graphs: Sequence[Tensor | Entries]) -> dict[str, np.ndarray[Any, Any]]:
    """weights (R, K, K); or, where some are tables, weights and senders (R, K, M), -1 where a row has fewer candidates."""
    if not any(isinstance(graph, Entries) for graph in graphs):
        return {"weights": np.stack([np.asarray(graph) for graph in graphs])}
    tables = [graph if isinstance(graph, Entries) else _table(graph) for graph in graphs]
    width = max(table.senders.shape[1] for table in tables)

    def padded(part: Tensor, fill: int) -> np.ndarray[Any, Any]:
        return np.pad(part.numpy(), ((0, 0), (0, width - part.shape[1])), constant_values=fill)

    return {
        "weights": np.stack([padded(table.values, 0) for table in tables]),
        "senders": np.stack([padded(table.senders, -1) for table in tables]),
    }


def _table(weights: Tensor) -> Entries:
    """A matrix (K, K) as a table of what is not 0 in it."""
    width = max(1, int((weights != 0).sum(1).max()))
    senders = (weights != 0).double().topk(width, dim=1).indices.sort(dim=1).values
    values = weights.gather(1, senders)
    return Entries(values, senders.masked_fill(values == 0, -1))
