"""Cooperation graphs whose edges, groups and masked pairs are known."""

from __future__ import annotations

import torch

from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.graph.scores import same_group


def planted(groups: list[int], seed: int = 0, **fields: object) -> CooperationGraph:
    """Everybody's candidates are all others; members of a group weigh 0.85 to 0.95, others at most 0.1."""
    count = len(groups)
    noise = torch.rand(count, count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    weights = 0.1 * noise + 0.85 * same_group(groups)
    names = tuple(f"client {i}" for i in range(count))
    return CooperationGraph(weights, names, Peers.everybody(count), groups=tuple(groups), **fields)  # type: ignore[arg-type]


def table() -> CooperationGraph:
    """Four clients with two candidates each; three of the eight pairs are masked, though they have a weight."""
    senders = torch.tensor([[1, 2], [2, 3], [0, 3], [0, 1]])
    mask = torch.tensor([[True, True], [True, False], [True, True], [False, False]])
    weights = torch.tensor([[0.9, 0.2], [0.7, 0.6], [0.3, 0.8], [0.5, 0.5]])
    return CooperationGraph(weights, ("a", "b", "c", "d"), Peers(mask, senders))
