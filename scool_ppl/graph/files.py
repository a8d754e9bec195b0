"""A cooperation graph as a networkx graph and as a file, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import ParseError

import networkx as nx
import torch
from torch import Tensor

from scool_ppl.base.files import replacing
from scool_ppl.errors import InputError
from scool_ppl.graph.belief import believed
from scool_ppl.graph.blocks import by_appearance
from scool_ppl.graph.candidates import Peers

if TYPE_CHECKING:
    from scool_ppl.graph.cooperation import CooperationGraph

COMPONENT = "component"
"""The `seat` of a node without data."""


def to_networkx(cooperation: CooperationGraph, threshold: float | None = None) -> nx.DiGraph:
    """See CooperationGraph.to_networkx."""
    complete = not cooperation.peers.is_table and bool(
        (cooperation.peers.mask | torch.eye(cooperation.num_clients).bool()).all()
    )
    graph = nx.DiGraph(kind=cooperation.kind, peers="everybody" if complete else "edges")
    columns: dict[str, Sequence[Any]] = {"block": cooperation.blocks().tolist()}
    if cooperation.groups is not None:
        columns["group"] = [int(group) for group in cooperation.groups]
    if cooperation.accuracy is not None:
        columns["accuracy"] = cooperation.accuracy.double().tolist()
    if cooperation.samples is not None:
        columns["samples"] = cooperation.samples.long().tolist()
    if cooperation.positions is not None:
        columns["x"], columns["y"] = cooperation.positions.double().T.tolist()
    graph.add_nodes_from(zip(cooperation.names, _rows(columns), strict=True))
    receivers, places, senders = cooperation.peers._replace(mask=cooperation.chosen(threshold)).pairs()
    tables: dict[str, Tensor] = {"weight": cooperation.weights.double(), "believed": cooperation.believed}
    if cooperation.kind != "point":
        tables["probability"] = tables["weight"]
    if cooperation.low is not None and cooperation.high is not None:
        tables |= {"low": cooperation.low.double(), "high": cooperation.high.double()}
    ends = ([cooperation.names[i] for i in part.tolist()] for part in (senders, receivers))
    about = _rows({name: table[receivers, places].tolist() for name, table in tables.items()})
    graph.add_edges_from(zip(*ends, about, strict=True))
    if cooperation.components is not None:
        _add_components(graph, cooperation, cooperation.components, threshold)
    return graph


def _add_components(graph: nx.DiGraph, cooperation: CooperationGraph, shares: Tensor, threshold: float | None) -> None:
    """Seats without data as nodes, with an edge to each client that uses them, shares (K, G)."""
    names, taken = cooperation.component_names, believed(shares, cooperation.kind)
    graph.add_nodes_from(cooperation.names, seat="client")
    graph.add_nodes_from(names, seat=COMPONENT)
    chosen = taken if threshold is None else shares > threshold
    for client, seat in chosen.nonzero().tolist():
        about = {"weight": float(shares[client, seat]), "believed": bool(taken[client, seat])}
        graph.add_edge(names[seat], cooperation.names[client], **about)


def _without_components(graph: nx.Graph) -> tuple[nx.Graph, Tensor | None]:
    """The graph of the clients, in the order of the file, and how much each of them uses each component."""
    seats = [node for node, about in graph.nodes(data=True) if about.get("seat") == COMPONENT]
    if not seats:
        return graph, None
    clients = graph.copy()
    clients.remove_nodes_from(seats)
    place = {node: number for number, node in enumerate(clients)}
    shares = torch.zeros(len(place), len(seats), dtype=torch.float64)
    for number, seat in enumerate(seats):
        users = {node: about.get("weight", 1.0) for node, about in graph[seat].items() if node in place}
        shares[[place[node] for node in users], number] = _numbers("weight", list(users.values()))
    return clients, shares


def _rows(columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """One dictionary a row."""
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def from_networkx(graph: nx.Graph, into: type[CooperationGraph]) -> CooperationGraph:
    """See CooperationGraph.from_networkx."""
    if graph.is_multigraph() or len(graph) == 0:
        found = "no nodes" if len(graph) == 0 else "parallel edges"
        raise InputError(f"graph has {found}, expected a simple graph with a node per client; convert it by nx.DiGraph")
    graph, components = _without_components(graph)
    receivers, senders, tables = _edges(graph)
    table = _everybody if graph.graph.get("peers", "everybody") == "everybody" else _table
    place, peers = table(len(graph), receivers, senders)
    filled = {name: torch.zeros(peers.mask.shape, dtype=torch.float64) for name in tables}
    for name, values in tables.items():
        filled[name][place] = values
    block, group = _column(graph, "block"), _column(graph, "group")
    accuracy, samples = _column(graph, "accuracy"), _column(graph, "samples")
    memberships = None if block is None else torch.nn.functional.one_hot(by_appearance(block)).double()
    at = [_column(graph, axis) for axis in ("x", "y")]
    positions = None if None in at else torch.stack([_numbers("place", axis or []) for axis in at], 1)
    return into(
        weights=filled["weight"],
        names=tuple(str(node) for node in graph),
        peers=peers,
        kind=graph.graph.get("kind", "point"),
        memberships=memberships,
        blocks_are_final=True,
        groups=None if group is None else _integers(group),
        accuracy=None if accuracy is None else _numbers("accuracy", accuracy),
        samples=None if samples is None else _numbers("samples", samples).long(),
        positions=positions,
        low=filled.get("low"),
        high=filled.get("high"),
        components=components,
    )


def _edges(graph: nx.Graph) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Receivers, senders and numbers of the edges, ordered by receiver; intervals where every edge has both ends of one."""
    index = {node: position for position, node in enumerate(graph)}
    edges = [(index[v], index[u], about) for u, v, about in graph.edges(data=True)]
    if not graph.is_directed():
        edges += [(u, v, about) for v, u, about in edges if u != v]
    edges.sort(key=lambda edge: edge[:2])
    tables = {"weight": _numbers("weight", [about.get("weight", 1.0) for *_, about in edges])}
    if edges and all(about.get("low") is not None and about.get("high") is not None for *_, about in edges):
        tables |= {name: _numbers(name, [about[name] for *_, about in edges]) for name in ("low", "high")}
    receivers, senders = (torch.tensor([edge[end] for edge in edges], dtype=torch.long) for end in (0, 1))
    return receivers, senders, tables


def save(cooperation: CooperationGraph, path: str | Path, threshold: float | None = 0) -> None:
    """See CooperationGraph.save."""
    path = Path(path)
    suffix = _suffix(path)
    graph = to_networkx(cooperation, threshold)
    if suffix == ".gexf":
        # GEXF has no attributes of the graph itself but its name.
        graph.graph["name"] = f"kind={graph.graph['kind']} peers={graph.graph['peers']}"
    with replacing(path) as temporary:
        (nx.write_graphml if suffix == ".graphml" else nx.write_gexf)(graph, temporary)


def load(path: str | Path, into: type[CooperationGraph]) -> CooperationGraph:
    """See CooperationGraph.load."""
    path = Path(path)
    suffix = _suffix(path)
    try:
        graph = (nx.read_graphml if suffix == ".graphml" else nx.read_gexf)(path)
    except (OSError, ParseError, nx.NetworkXError, ValueError, KeyError) as error:
        raise InputError(f"cannot read '{path}' as {suffix[1:]}: {error}; check the path and the file") from error
    if suffix == ".gexf":
        named = dict(item.split("=", 1) for item in str(graph.graph.get("name", "")).split() if "=" in item)
        graph.graph.update({name: named[name] for name in ("kind", "peers") if name in named})
    return into.from_networkx(_called(graph))


def _called(graph: nx.Graph) -> nx.Graph:
    """The graph with the nodes called as the file calls them: programs that number their nodes write names beside them."""
    for attribute in ("name", "label"):
        names = [str(name) for name in _column(graph, attribute) or () if name]
        if len(set(names)) == len(graph):
            return nx.relabel_nodes(graph, dict(zip(graph, names, strict=True)))
    return graph


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


Places = tuple[Tensor, Tensor]
"""Row and column of each edge in a (K, M) table."""


def _everybody(count: int, receivers: Tensor, senders: Tensor) -> tuple[Places, Peers]:
    return (receivers, senders), Peers.everybody(count, includes_self=bool((receivers == senders).any()))


def _table(count: int, receivers: Tensor, senders: Tensor) -> tuple[Places, Peers]:
    """The edges, sorted by receiver, as a table with as many columns as the receiver of most senders needs."""
    degree = torch.bincount(receivers, minlength=count)
    columns = torch.arange(len(receivers)) - (degree.cumsum(0) - degree)[receivers]
    width = max(int(degree.max()), 1)
    mask, candidates = torch.zeros(count, width, dtype=torch.bool), torch.zeros(count, width, dtype=torch.long)
    mask[receivers, columns], candidates[receivers, columns] = True, senders
    return (receivers, columns), Peers(mask, candidates)
