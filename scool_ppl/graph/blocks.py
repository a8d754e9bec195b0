"""Blocks: who belongs together in a cooperation graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
import torch
from torch import Tensor

from scool_ppl.graph.candidates import Peers

# Pairs below count as unconnected when communities are looked for: an absolute probability where edges are independent,
# else a share of the heaviest weight, since rows that sum to one get light as clients get many.
UNCONNECTED: dict[str, float] = {"edges": 0.1, "rows": 0.01, "point": 0.01}


def by_appearance(labels: Sequence[Any]) -> Tensor:
    """Labels of any kind as numbers from 0 in order of first appearance, (n,) long."""
    codes: dict[Any, int] = {}
    return torch.tensor([codes.setdefault(label, len(codes)) for label in labels], dtype=torch.long)


def communities(weights: Tensor, peers: Peers, kind: str) -> Tensor:
    """Louvain communities of w + w^T, (K,) by appearance; the unconnected are alone."""
    rows, columns, senders = peers._replace(mask=weights != 0).pairs()
    values = weights[rows, columns]
    scale = 1.0 if kind == "edges" else float(weights.max())
    heavy = (rows != senders) & (values > UNCONNECTED[kind] * scale)
    rows, senders, values = rows[heavy], senders[heavy], values[heavy]
    pairs = torch.stack([torch.minimum(rows, senders), torch.maximum(rows, senders)], dim=1)
    pairs, which = pairs.unique(dim=0, return_inverse=True)
    both = torch.zeros(len(pairs), dtype=torch.float64).index_add_(0, which, values.double())
    network = nx.Graph()
    network.add_nodes_from(range(len(weights)))
    network.add_weighted_edges_from(zip(*pairs.T.tolist(), both.tolist(), strict=True) if len(pairs) else ())
    found = nx.community.louvain_communities(network, seed=0)
    community = {node: number for number, nodes in enumerate(found) for node in nodes}
    return by_appearance([community[node] for node in range(len(weights))])


def merged(blocks: Tensor, weights: Tensor, peers: Peers) -> Tensor:
    """The blocks (K,), by appearance, after merging those that cooperate with each other.

    Blocks g != h, and what they are connected to, are one if both d_gh, d_hg > 1/2:

        d_gh = sum_ij w_ij H_ig H_jh / sum_ij m_ij H_ig H_jh,   H_ig = [h_i = g],   m_ij = 1 if j is looked at by i.
    """
    member = torch.nn.functional.one_hot(blocks).double()
    # One-hot rows put the pair of a client with itself on the diagonal, (g, g), which is not used.
    weight, looked = (member.T @ peers.combine(w, member) for w in (weights, peers.mask))
    dense = weight > 0.5 * looked
    network = nx.Graph()
    network.add_nodes_from(range(len(dense)))
    network.add_edges_from((dense & dense.T).nonzero().tolist())
    together = {g: number for number, one in enumerate(nx.connected_components(network)) for g in one}
    return by_appearance([together[g] for g in blocks.tolist()])
