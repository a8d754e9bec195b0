"""Belief: which edges of a graph are believed, by what its weights mean."""

from __future__ import annotations

import torch
from torch import Tensor

from scool_ppl.graph.blocks import by_appearance

BELIEVED_ABOVE = {"edges": 0.5, "rows": 0.5, "point": 0.01}
"""From which strength on an edge is believed, by what the weights are: see `believed`."""


def strength(weights: Tensor, kind: str) -> Tensor:
    """Weights (K, M) on one scale, at most 1: those of independent edges as they are, of rows relative to the heaviest of
    the row, of a point mass to the heaviest of all. Without a positive weight nothing has a positive strength.
    """
    if kind == "edges":
        return weights
    heaviest = weights.amax(dim=1, keepdim=True) if kind == "rows" else weights.max()
    return weights / heaviest.clamp(min=torch.finfo(weights.dtype).tiny)


def believed(weights: Tensor, kind: str) -> Tensor:
    """The edges that are believed, (K, M) bool, of weights (K, M) that are 0 where a pair was not looked at.

    Independent edges: w_ij > 1/2, rather there than not. One-hot rows: w_ij > 1/2 max_l w_il, since rows that sum to one
    get light as candidates get many; a uniform row believes in all of them. A point mass has no doubt: all weights but
    negligible ones, w_ij > 0.01 max w.
    """
    return strength(weights, kind) > BELIEVED_ABOVE[kind]


def pieces(blocks: Tensor, receivers: Tensor, senders: Tensor) -> Tensor:
    """The blocks (K,) cut into pieces that edges inside them connect, in any direction: (K,) long, by appearance.

    A member whom no edge connects with another one of its block is a piece of its own.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    inside = blocks[receivers] == blocks[senders]
    ends = receivers[inside].numpy(), senders[inside].numpy()
    table = coo_array((torch.ones(len(ends[0])).numpy(), ends), shape=(len(blocks), len(blocks)))
    _, labels = connected_components(table, directed=False)
    return by_appearance(labels.tolist())
