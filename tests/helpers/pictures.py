"""Graphs and histories to be drawn, and what is asked of a figure once its places are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.graph.scores import same_group

GROUPS = tuple(i % 4 for i in range(20))


def grouped(groups: tuple[int, ...] = GROUPS, seed: int = 0, **fields: Any) -> CooperationGraph:
    """Weights of 0.85 and more inside the groups, of less than 0.09 between them."""
    count = len(groups)
    noise = torch.rand(count, count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    names = tuple(f"client-{i}" for i in range(count))
    weights = 0.09 * noise + 0.85 * same_group(groups)
    return CooperationGraph(weights, names, Peers.everybody(count), **({"groups": groups} | fields))


def even(weight: float, num_clients: int = 4) -> CooperationGraph:
    """Everybody has the same weight for everybody else."""
    weights = torch.full((num_clients, num_clients), weight).fill_diagonal_(0)
    return CooperationGraph(weights, tuple(f"client {i}" for i in range(num_clients)), Peers.everybody(num_clients))


def history(rounds: int = 6) -> list[dict[str, Any]]:
    """Rows in which no two numbers of a round are the same."""
    return [
        {
            "round": r,
            "elbo": -100.0 / r,
            "loss": 2.0 / r,
            "accuracy": {"mean": 0.5 + 0.05 * r, "std": 0.04, "worst10": 0.4 + 0.05 * r},
            "accuracy_trained": {"mean": 0.45 + 0.05 * r},
            "task_accuracy": {"mean": 0.55 + 0.05 * r},
            "graph": {"l1": 1.0 / r, "auc": 1 - 0.3 / r, "ari": 1 - 0.5 / r},
        }
        for r in range(1, rounds + 1)
    ]


def arranged(figure: Any) -> Figure:
    """The figure after its layout, so that extents are those of the picture."""
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    return figure


def on_page(figure: Figure, boxes: Sequence[Bbox]) -> bool:
    """No box is cut off."""
    page = figure.bbox
    return all(page.x0 <= b.x0 and b.x1 <= page.x1 and page.y0 <= b.y0 and b.y1 <= page.y1 for b in boxes)


def apart(boxes: Sequence[Bbox]) -> bool:
    """No two boxes overlap."""
    return not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def nodes_of(ax: Any) -> list[PathCollection]:
    return [collection for collection in ax.collections if isinstance(collection, PathCollection)]


def extents(ax: Any) -> list[Bbox]:
    """The box of every node, in pixels."""
    boxes = []
    for collection in nodes_of(ax):
        half = np.sqrt(collection.get_sizes()[0]) / 2 * ax.figure.dpi / 72
        for x, y in ax.transData.transform(collection.get_offsets()):
            boxes.append(Bbox([[x - half, y - half], [x + half, y + half]]))
    return boxes
