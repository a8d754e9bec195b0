"""The graph as what a page shows: its strongest edges with their intervals, its blocks, and matrices over the rounds."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from scool_ppl.graph.belief import BELIEVED_ABOVE, strength
from scool_ppl.graph.candidates import Peers
from scool_ppl.plots.matrix import averaged
from scool_ppl.plots.style import Array

MOST_EDGES = 10_000
"""So many edges a page holds: all of a hundred clients."""
MOST_OF_EACH = 8
"""So many of each of many clients' edges a page holds, as bytes."""
LEAST = 0.005
"""Edges that are not stronger are none."""
MOST_CELLS = 200
"""So many rows and columns a matrix has; of more clients, neighbours in its order are averaged."""


class Links(NamedTuple):
    """The links of a graph, (K, M) each: a row a receiver, columns as in `peers`; none of a client with itself."""

    kind: str
    peers: Peers
    weights: Array
    strength: Array
    """See `graph.belief`."""
    low: Array | None = None
    high: Array | None = None

    @property
    def highest(self) -> float:
        """The weight at the end of the scale."""
        return 1.0 if self.kind == "edges" else max(float(self.weights.max(initial=0)), 1e-12)

    @property
    def is_best(self) -> bool:
        """Is it one graph, the most probable one, rather than probabilities?"""
        return self.kind == "edges" and bool(np.isin(self.weights, (0.0, 1.0)).all())

    @property
    def senders(self) -> NDArray[np.int64]:
        """Who teaches in each pair, (K, M)."""
        return np.broadcast_to(self.peers.columns().numpy(), self.weights.shape)

    @property
    def pairs(self) -> NDArray[np.bool_]:
        """The pairs of two clients that were looked at, (K, M)."""
        found: NDArray[np.bool_] = (self.peers.mask & ~self.peers.own()).numpy()
        return found

    @property
    def believed(self) -> NDArray[np.bool_]:
        """Who learns from whom, as far as it is believed, (K, M)."""
        found: NDArray[np.bool_] = self.strength > BELIEVED_ABOVE[self.kind]
        return found

    @property
    def learns(self) -> NDArray[np.int64]:
        """From how many each learns, (K,), as far as it is believed."""
        return self.believed.sum(1)

    @property
    def teaches(self) -> NDArray[np.int64]:
        """How many each teaches, (K,), as far as it is believed."""
        return np.bincount(self.senders[self.believed], minlength=len(self.weights))


def links_of(
    kind: str, weights: Array, intervals: tuple[Array, Array] | None = None, peers: Peers | None = None
) -> Links:
    """The links of a graph with these weights (K, M), among which is what clients keep of their own."""
    peers = Peers.everybody(len(weights), includes_self=True) if peers is None else peers
    own = peers.own().numpy()
    others, strong = (np.where(own, 0.0, part) for part in (weights, strength(torch.from_numpy(weights), kind).numpy()))
    return Links(kind, peers, others, strong, *(intervals or (None, None)))


def strongest(links: Links, most: int = MOST_EDGES) -> dict[str, Any]:
    """At most so many edges, each client's strongest first: columns from, to, w, strength, low, high, and their total."""
    order = np.argsort(-links.strength, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(order.shape[1]), order.shape), axis=1)
    receivers, columns = np.nonzero(links.strength > LEAST)
    first = np.lexsort((-links.strength[receivers, columns], rank[receivers, columns]))[:most]
    to, columns = receivers[first], columns[first]
    source = links.senders[to, columns]
    found: dict[str, Any] = {"from": source.tolist(), "to": to.tolist(), "total": len(receivers)}
    told = {"w": links.weights, "strength": links.strength, "low": links.low, "high": links.high}
    if links.kind == "edges":
        del told["strength"]  # it is the weight
    return found | {
        name: values[to, columns].astype(float).round(3).tolist() for name, values in told.items() if values is not None
    }


def packed(links: Links) -> dict[str, Any]:
    """The strongest edges of each of many clients in little space, a client's after another's: `counts` of each, and as
    bytes who teaches (16 bits, 32 of more than 65,536 clients), the weight, and the strength where it is another (16 bits,
    65535 for the highest).
    """
    order = np.argsort(-links.strength, axis=1, kind="stable")[:, :MOST_OF_EACH]
    strong, weights = (np.take_along_axis(part, order, 1) for part in (links.strength, links.weights))
    senders = np.take_along_axis(links.senders, order, 1)
    held = strong > LEAST

    def scaled(values: Array) -> str:
        return _bytes((np.clip(values[held], 0, 1) * 65535).round().astype("<u2"))

    found = {
        "counts": held.sum(1).tolist(),
        "from": _bytes(senders[held].astype("<u2" if len(weights) <= 2**16 else "<u4")),
        "w": scaled(weights / links.highest),
        "highest": links.highest,
        "total": int((links.strength > LEAST).sum()),
    }
    return found if links.kind == "edges" else found | {"strength": scaled(strong)}


def between_blocks(links: Links, values: Array, blocks: NDArray[np.int64], count: int | None = None) -> Array:
    """The mean [receivers' block, senders' block] over looked-at pairs of different clients, 0 where there are none; of the
    first `count` blocks, by default of all.
    """
    count = int(blocks.max()) + 1 if count is None else count
    receivers, columns = np.nonzero(links.pairs)
    to, source = blocks[receivers], blocks[links.senders[receivers, columns]]
    here = (to < count) & (source < count)
    places = to[here] * count + source[here]
    sums = np.bincount(places, values[receivers[here], columns[here]], minlength=count**2)
    mean: Array = sums / np.bincount(places, minlength=count**2).clip(min=1)
    return mean.reshape(count, count)


def matrices(frames: dict[str, tuple[Peers, Array]], order: NDArray[np.int64], highest: float) -> dict[str, Any]:
    """The frames as bytes, 255 for `highest`, in an order of clients; averaged where there are many."""
    bins = min(len(order), MOST_CELLS)
    which = np.arange(len(order)) * bins // len(order)
    cells = {}
    for name, (peers, values) in frames.items():
        mean = averaged(values, peers, order, bins).filled(0)
        cells[name] = _bytes((np.clip(mean / highest, 0, 1) * 255).round().astype(np.uint8))
    first = [int(np.flatnonzero(which == place)[0]) for place in range(bins)]
    return {"size": bins, "frames": cells, "order": order.tolist(), "first": first, "highest": highest}


def _bytes(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()
