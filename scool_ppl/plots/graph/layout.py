"""Where clients stand in the picture of a graph: blocks apart, those without edges beneath them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.plots.style import Array

_CIRCLE = 8
"""So many blocks stand on a circle, more fill the plane."""
_PITCH = 1.5
"""Distance of clients without edges, in units of the root of a block's size; inside a block it is about that, too."""


def layout(graph: CooperationGraph, *, seed: int = 0) -> dict[str, tuple[float, float]]:
    """A place in [-1, 1]^2 for each client: blocks apart, a spring layout inside each; clients without edges below.

    Edges are those that are believed, blocks what these connect. A graph with positions of its own (a latent space) is
    drawn at them.
    """
    if graph.positions is not None:
        return _fitted(graph.names, graph.positions.double().numpy())
    blocks = graph.connected_blocks().numpy()
    receivers, senders, weights = (part.numpy() for part in graph.edges())
    alone = np.isin(
        np.arange(len(blocks)), [*receivers[receivers != senders], *senders[receivers != senders]], invert=True
    )
    sizes = np.bincount(blocks[~alone], minlength=1 + blocks.max())
    shown = np.flatnonzero(sizes)
    centres = _centres(np.sqrt(sizes[shown]))
    places = np.zeros((len(blocks), 2))
    for block, centre in zip(shown, centres, strict=True):
        members = np.flatnonzero(blocks == block)
        inside = (blocks[receivers] == block) & (blocks[senders] == block)
        table = np.zeros((len(members), len(members)))
        ends = (np.searchsorted(members, end[inside]) for end in (receivers, senders))
        table[tuple(ends)] = weights[inside].clip(min=0)
        places[members] = centre + 0.8 * math.sqrt(len(members)) * _springs(table, seed)
    places[alone] = _rows(int(alone.sum()), places[~alone])
    return _fitted(graph.names, places)


def block_places(sizes: NDArray[np.int64]) -> Array:
    """A place in [-1, 1]^2 for each of at least one block of so many clients, apart as far as their sizes need."""
    return _scaled(_centres(np.sqrt(sizes)))


def component_places(use: Array, places: Array) -> Array:
    """Places (G, 2) of components in the middle of those who use them, use (K, G) and places (K, 2), or beside it where
    somebody stands there; those that nobody uses stand in rows above all others.
    """
    found: Array = (use.T @ places) / use.sum(0).clip(1e-12)[:, None]
    used, idle = use.sum(0) > 0, np.flatnonzero(use.sum(0) == 0)
    gap = 0.85 * min(spacing(places), 0.4)
    taken = places
    for seat in np.flatnonzero(used):
        found[seat] = _beside(found[seat], taken, gap)
        taken = np.concatenate([taken, found[seat : seat + 1]])
    across = min(len(idle), int(2 / gap))
    row, place = np.divmod(np.arange(len(idle)), max(across, 1))
    found[idle, 0] = gap * (place - (across - 1) / 2)
    found[idle, 1] = taken[:, 1].max() + gap * (1.5 + row)
    return found


def _beside(place: Array, taken: Array, gap: float) -> Array:
    """The place (2,), or the nearest of some about it that is `gap` away from all that are taken, (n, 2)."""
    turns = np.pi / 2 + np.arange(16) * (np.pi / 8)
    unit = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    options = np.concatenate([place[None], *(place + gap * reach * unit for reach in (1.0, 1.5, 2.0, 3.0))])
    room = np.linalg.norm(options[:, None] - taken, axis=2).min(axis=1)
    fits = np.flatnonzero(room >= 0.999 * gap)
    chosen: Array = options[fits[0] if len(fits) else room.argmax()]
    return chosen


def spacing(places: Array) -> float:
    """Distance of places (K, 2) to the nearest other, but for a few pairs that are nearer, or infinite for one."""
    from scipy.spatial import KDTree

    if len(places) == 1:
        return float(np.inf)
    nearest = KDTree(places).query(places, k=2)[0][:, 1]
    return float(np.quantile(nearest, 0.1))


def _fitted(names: Sequence[str], places: Array) -> dict[str, tuple[float, float]]:
    """The places scaled into [-1, 1]^2, by name."""
    places = _scaled(places)
    return {name: (float(x), float(y)) for name, (x, y) in zip(names, places, strict=True)}


def _scaled(places: Array) -> Array:
    """The places moved and scaled into [-1, 1]^2."""
    places = places - (places.max(axis=0) + places.min(axis=0)) / 2
    found: Array = places / max(float(np.abs(places).max()), 1e-12)
    return found


def _rows(count: int, others: Array) -> Array:
    """Places (count, 2) in rows below the others, or about as wide as high where there are none."""
    left, right = (others[:, 0].min(), others[:, 0].max()) if len(others) else (0.0, 0.0)
    across = min(count, max(math.floor((right - left) / _PITCH) + 1, math.ceil(math.sqrt(1.3 * count)))) if count else 1
    number, place = np.divmod(np.arange(count), across)
    top = others[:, 1].min() - 1.6 * _PITCH if len(others) else 0.0
    return np.stack([(left + right) / 2 + _PITCH * (place - (across - 1) / 2), top - _PITCH * number], axis=1)


def _centres(radii: Array) -> Array:
    """Centres (n, 2) of discs that are apart: on a circle where they are few, else the largest in the middle."""
    if len(radii) <= 1:
        return np.zeros((len(radii), 2))
    return _circle(radii) if len(radii) <= _CIRCLE else _packed(1.15 * radii)


def _circle(radii: Array) -> Array:
    """Centres of discs on a circle just large enough to keep them apart, clockwise from the top."""
    angles = np.pi / 2 - 2 * np.pi * (np.cumsum(radii) - radii / 2) / radii.sum()
    unit = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    apart = np.linalg.norm(unit[:, None] - unit, axis=2) + np.eye(len(radii))
    needed = (radii[:, None] + radii) / apart * (1 - np.eye(len(radii)))
    centres: Array = 1.15 * needed.max() * unit
    return centres


def _packed(radii: Array) -> Array:
    """Centres of discs, the largest first, each as near to the middle of those before as it can touch two of them."""
    order = np.argsort(-radii, kind="stable")
    centres = np.zeros((len(radii), 2))
    centres[order[1], 0] = radii[order[:2]].sum()
    for number, disc in enumerate(order[2:], start=2):
        before = order[:number]
        centres[disc] = _nearest_gap(centres[before], radii[before], radii[disc])
    return centres


def _nearest_gap(centres: Array, radii: Array, radius: float) -> Array:
    """Where a disc of this radius touches two of the discs (n, 2) and overlaps none, nearest to their middle."""
    reach = radii + radius
    apart = np.linalg.norm(centres[:, None] - centres, axis=2)
    first, second = np.nonzero(np.triu(apart < reach[:, None] + reach, k=1))
    distance = apart[first, second]
    along = (distance**2 + reach[first] ** 2 - reach[second] ** 2) / (2 * distance)
    across = np.sqrt(np.maximum(reach[first] ** 2 - along**2, 0))
    unit = (centres[second] - centres[first]) / distance[:, None]
    normal = np.stack([-unit[:, 1], unit[:, 0]], axis=1)
    middle = centres[first] + along[:, None] * unit
    touching = np.concatenate([middle + across[:, None] * normal, middle - across[:, None] * normal])
    free = (np.linalg.norm(touching[:, None] - centres, axis=2) >= reach - 1e-9).all(axis=1)
    touching = touching[free]
    gap: Array = touching[np.linalg.norm(touching - np.average(centres, axis=0, weights=radii**2), axis=1).argmin()]
    return gap


def _springs(weights: Array, seed: int) -> Array:
    """Places (n, 2) in the unit disc: a ring, or a sunflower's pattern, and from there a few spring iterations.

    Where nearly all are linked springs have nothing to say.
    """
    count = len(weights)
    if count == 1:
        return np.zeros((1, 2))
    turns = np.arange(count) * (2 * np.pi / count if count < 8 else np.pi * (3 - math.sqrt(5))) + np.pi / 2
    reach = np.ones(count) if count < 8 else np.sqrt((np.arange(count) + 0.5) / count)
    places = np.stack([reach * np.cos(turns), reach * np.sin(turns)], axis=1)
    if (weights + weights.T > 0).sum() >= 0.8 * count * (count - 1):
        return places
    places += np.random.default_rng(seed).normal(scale=0.02, size=(count, 2))
    network = nx.from_numpy_array((weights + weights.T) / max(2 * float(weights.max()), 1e-12))
    sprung = nx.spring_layout(network, pos=dict(enumerate(places)), iterations=30, scale=None, seed=seed)
    places = np.array([sprung[node] for node in range(count)])
    places -= places.mean(axis=0)
    return places / max(float(np.linalg.norm(places, axis=1).max()), 1e-12)
