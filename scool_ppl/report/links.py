"""The graph as what a page shows: its strongest edges with their intervals, its blocks, and matrices over the rounds."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from scool_ppl.graph.belief import BELIEVED_ABOVE, strength
from scool_ppl.plots.style import Array

MOST_EDGES = 10_000
"""So many edges a page holds: all of a hundred clients."""
MOST_CELLS = 200
"""So many rows and columns a matrix has; of more clients, neighbours in its order are averaged."""


class Links(NamedTuple):
    """The links of a graph [receiver, sender], none of a client with itself."""

    kind: str
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
    def believed(self) -> NDArray[np.bool_]:
        """Who learns from whom, as far as it is believed."""
        found: NDArray[np.bool_] = self.strength > BELIEVED_ABOVE[self.kind]
        return found


def links_of(kind: str, weights: Array, intervals: tuple[Array, Array] | None = None) -> Links:
    """The links of a graph with these weights (K, K), whose diagonal is what clients keep of their own."""
    own = np.eye(len(weights), dtype=bool)
    others, strong = (np.where(own, 0.0, part) for part in (weights, strength(torch.from_numpy(weights), kind).numpy()))
    return Links(kind, others, strong, *(intervals or (None, None)))


def strongest(links: Links, most: int = MOST_EDGES) -> dict[str, Any]:
    """At most so many edges, each client's strongest first: columns from, to, w, strength, low, high, and their total."""
    order = np.argsort(-links.strength, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(len(order))[None].repeat(len(order), 0), axis=1)
    receivers, senders = np.nonzero(links.strength > 0.005)
    first = np.lexsort((-links.strength[receivers, senders], rank[receivers, senders]))[:most]
    to, source = receivers[first], senders[first]
    found: dict[str, Any] = {"from": source.tolist(), "to": to.tolist(), "total": len(receivers)}
    told = {"w": links.weights, "strength": links.strength, "low": links.low, "high": links.high}
    if links.kind == "edges":
        del told["strength"]  # it is the weight
    return found | {
        name: values[to, source].astype(float).round(3).tolist() for name, values in told.items() if values is not None
    }


def between_blocks(values: Array, blocks: NDArray[np.int64]) -> Array:
    """The mean [receivers' block, senders' block] over pairs of different clients, 0 where there are none."""
    member = np.eye(int(blocks.max()) + 1)[blocks]
    pairs = member.sum(0)[:, None] * member.sum(0) - np.diag(member.sum(0))
    mean: Array = member.T @ values @ member / np.maximum(pairs, 1)
    return mean


def matrices(frames: dict[str, Array], order: NDArray[np.int64], highest: float) -> dict[str, Any]:
    """The frames as bytes, 255 for `highest`, in an order of clients; averaged where there are many."""
    bins = min(len(order), MOST_CELLS)
    which = np.arange(len(order)) * bins // len(order)
    share = np.eye(bins)[which] / np.bincount(which, minlength=bins)[which, None]
    cells = {}
    for name, frame in frames.items():
        mean = share.T @ frame[np.ix_(order, order)] @ share
        scaled = (np.clip(mean / highest, 0, 1) * 255).round().astype(np.uint8)
        cells[name] = base64.b64encode(scaled.tobytes()).decode()
    first = [int(np.flatnonzero(which == place)[0]) for place in range(bins)]
    return {"size": bins, "frames": cells, "order": order.tolist(), "first": first, "highest": highest}
