"""Belief: which edges of a graph are believed, by what its weights mean."""

from __future__ import annotations

import torch
from torch import Tensor

from scool_ppl.graph.blocks import by_appearance

NEGLIGIBLE = 0.01
"""A weight of a point mass below this share of the heaviest is no edge."""


def believed(weights: Tensor, kind: str) -> Tensor:
    """The edges that are believed, (K, M) bool, of weights (K, M) that are 0 where a pair was not looked at.

    Independent edges: w_ij > 1/2, rather there than not. One-hot rows: w_ij > 1/2 max_l w_il, since rows that sum to one
    get light as candidates get many; a uniform row believes in all of them. A point mass has no doubt: all weights but
    negligible ones, w_ij > NEGLIGIBLE max w.
    """
    if kind == "edges":
        return weights > 0.5
    if kind == "rows":
        return weights > 0.5 * weights.amax(dim=1, keepdim=True).clamp(min=0)
    return weights > NEGLIGIBLE * weights.max().clamp(min=0)


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
