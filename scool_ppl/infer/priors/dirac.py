"""Dirac: a graph that is given, not inferred."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from scool_ppl.base.arguments import check_kind
from scool_ppl.errors import InputError
from scool_ppl.infer.priors.base import GraphPrior
from scool_ppl.look.evidence import Evidence


class Dirac(GraphPrior):
    """Y = W0 with probability one (SCooL 4.1): identity, uniform, a ring, the true groups, any (K, K) matrix.

    A graph with weights on the diagonal lets clients choose themselves (`includes_self`). In a round in which clients are
    absent the rest of a row is scaled up to the row's sum.
    """

    weights: Tensor
    kind = "point"

    def __init__(self, weights: Tensor) -> None:
        check_kind("weights of Dirac", weights, Tensor, "convert by torch.tensor")
        if weights.dim() != 2 or weights.shape[0] != weights.shape[1] or len(weights) == 0:
            raise InputError(
                f"graph has shape {tuple(weights.shape)}, expected (K, K): one row per receiving client, "
                "one column per sender"
            )
        if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
            raise InputError("graph has negative or non-finite weights, expected finite weights of at least 0")
        super().__init__(weights.shape[0])
        self.register_buffer("weights", weights.clone())
        self.includes_self = bool((weights.diagonal() > 0).any())

    def model(self, evidence: Evidence) -> Tensor:
        there = (self.weights * evidence.present).sum(1, keepdim=True)
        weights = self.weights * (self.weights.sum(1, keepdim=True) / there.clamp(min=1e-30))
        with self.edges:
            graph = dist.Delta(evidence.peers.take(weights))
            return pyro.sample("Y", graph, obs=graph.v)

    def initial_graph(self) -> Tensor:
        return self.weights
