"""A cooperation graph as a networkx graph and as a file, and back; and files that are replaced in one step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import ParseError

import networkx as nx
import torch
from torch import Tensor

from scool_ppl.base.files import replacing
from scool_ppl.errors import InputError
from scool_ppl.graph.blocks import by_appearance
from scool_ppl.graph.candidates import Peers

if TYPE_CHECKING:
    from scool_ppl.graph.cooperation import CooperationGraph


def to_networkx(cooperation: CooperationGraph) -> nx.DiGraph:
    """A DiGraph on the names; the edge u -> v, "v learns from u", has weight w[v, u]; weights of 0 are no edges."""
    complete = not cooperation.peers.is_table and bool(
        (cooperation.peers.mask | torch.eye(cooperation.num_clients).bool()).all()
    )
    graph = nx.DiGraph(kind=cooperation.kind, peers="everybody" if complete else "edges")
    columns: dict[str, Sequence[Any]] = {"name": cooperation.names, "block": cooperation.blocks().tolist()}
    if cooperation.groups is not None:
        columns["group"] = [int(group) for group in cooperation.groups]
    if cooperation.accuracy is not None:
        columns["accuracy"] = cooperation.accuracy.double().tolist()
    if cooperation.samples is not None:
        columns["samples"] = cooperation.samples.long().tolist()
    if cooperation.positions is not None:
        columns["x"], columns["y"] = cooperation.positions.double().T.tolist()
    for row in zip(*columns.values(), strict=True):
        graph.add_node(row[0], **dict(zip(columns, row, strict=True)))
    receivers, senders, weights = cooperation.edges()
    graph.add_weighted_edges_from(
        (cooperation.names[sender], cooperation.names[receiver], weight)
        for receiver, sender, weight in zip(
            receivers.tolist(), senders.tolist(), weights.double().tolist(), strict=True
        )
    )
    return graph


def from_networkx(graph: nx.Graph, into: type[CooperationGraph]) -> CooperationGraph:
    """The inverse of `to_networkx`, in float64; any simple networkx graph will do.

    An edge without a weight weighs 1, an undirected edge goes both ways, a graph of unknown kind is a point mass.
    Soft memberships come back as one-hot blocks. A graph written from a table of peers comes back as a table of
    its edges; looked-at pairs of weight 0 are then forgotten.
    """
    if graph.is_multigraph() or len(graph) == 0:
        found = "no nodes" if len(graph) == 0 else "parallel edges"
        raise InputError(f"graph has {found}, expected a simple graph with a node per client; convert it by nx.DiGraph")
    index = {node: position for position, node in enumerate(graph)}
    triples = [(index[v], index[u], weight) for u, v, weight in graph.edges(data="weight", default=1.0)]
    if not graph.is_directed():
        triples += [(u, v, weight) for v, u, weight in triples if u != v]
    triples.sort(key=lambda triple: triple[:2])
    receivers = torch.tensor([triple[0] for triple in triples], dtype=torch.long)
    senders = torch.tensor([triple[1] for triple in triples], dtype=torch.long)
    weights = _numbers("weight", [triple[2] for triple in triples])
    table = _everybody if graph.graph.get("peers", "everybody") == "everybody" else _table
    matrix, peers = table(len(graph), receivers, senders, weights)
    block, group = _column(graph, "block"), _column(graph, "group")
    accuracy, samples = _column(graph, "accuracy"), _column(graph, "samples")
    memberships = None if block is None else torch.nn.functional.one_hot(by_appearance(block)).double()
    place = [_column(graph, axis) for axis in ("x", "y")]
    positions = None if None in place else torch.stack([_numbers("place", axis or []) for axis in place], 1)
    return into(
        weights=matrix,
        names=tuple(str(name) for name in _column(graph, "name") or graph),
        peers=peers,
        kind=graph.graph.get("kind", "point"),
        memberships=memberships,
        blocks_are_final=True,
        groups=None if group is None else _integers(group),
        accuracy=None if accuracy is None else _numbers("accuracy", accuracy),
        samples=None if samples is None else _numbers("samples", samples).long(),
        positions=positions,
    )


def save(cooperation: CooperationGraph, path: str | Path) -> None:
    """Write .graphml or .gexf by networkx; an existing file is replaced in one step or left as it was."""
    path = Path(path)
    suffix = _suffix(path)
    graph = cooperation.to_networkx()
    if suffix == ".gexf":
        # GEXF has no attributes of the graph itself but its name.
        graph.graph["name"] = f"kind={graph.graph['kind']} peers={graph.graph['peers']}"
    with replacing(path) as temporary:
        (nx.write_graphml if suffix == ".graphml" else nx.write_gexf)(graph, temporary)


def load(path: str | Path, into: type[CooperationGraph]) -> CooperationGraph:
    """Read what `save` or another program wrote (see `from_networkx` for what is forgotten)."""
    path = Path(path)
    suffix = _suffix(path)
    try:
        graph = (nx.read_graphml if suffix == ".graphml" else nx.read_gexf)(path)
    except (OSError, ParseError, nx.NetworkXError, ValueError, KeyError) as error:
        raise InputError(f"cannot read '{path}' as {suffix[1:]}: {error}; check the path and the file") from error
    if suffix == ".gexf":
        named = dict(item.split("=", 1) for item in str(graph.graph.get("name", "")).split() if "=" in item)
        graph.graph.update({name: named[name] for name in ("kind", "peers") if name in named})
    return into.from_networkx(graph)


def _suffix(path: Path) -> str:
    if path.suffix.lower() not in (".graphml", ".gexf"):
        raise InputError(f"graph file '{path}' ends in '{path.suffix}', expected .graphml or .gexf; rename it")
    return path.suffix.lower()


def _column(graph: nx.Graph, attribute: str) -> list[Any] | None:
    values = [data.get(attribute) for _, data in graph.nodes(data=True)]
    return None if any(value is None for value in values) else values


def _numbers(name: str, values: Sequence[Any]) -> Tensor:
    try:
        return torch.tensor([float(value) for value in values], dtype=torch.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"graph has a {name} that is not a number ({error}); expected numbers; correct the file"
        ) from error


def _integers(labels: Sequence[Any]) -> tuple[int, ...]:
    """The labels themselves where they are integers, else numbers in order of first appearance."""
    return tuple(labels if all(isinstance(label, int) for label in labels) else by_appearance(labels).tolist())


def _everybody(count: int, receivers: Tensor, senders: Tensor, weights: Tensor) -> tuple[Tensor, Peers]:
    matrix = torch.zeros(count, count, dtype=torch.float64)
    matrix[receivers, senders] = weights
    return matrix, Peers.everybody(count, includes_self=bool((receivers == senders).any()))


def _table(count: int, receivers: Tensor, senders: Tensor, weights: Tensor) -> tuple[Tensor, Peers]:
    """The edges, sorted by receiver, as a table with as many columns as the receiver of most senders needs."""
    degree = torch.bincount(receivers, minlength=count)
    columns = torch.arange(len(receivers)) - (degree.cumsum(0) - degree)[receivers]
    width = max(int(degree.max()), 1)
    table, mask = torch.zeros(count, width, dtype=torch.float64), torch.zeros(count, width, dtype=torch.bool)
    candidates = torch.zeros(count, width, dtype=torch.long)
    table[receivers, columns], mask[receivers, columns], candidates[receivers, columns] = weights, True, senders
    return table, Peers(mask, candidates)
