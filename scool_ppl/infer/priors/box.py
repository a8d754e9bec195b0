"""Box: every edge is a weight between 0 and 1, and all weights are equally likely."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.infer.priors.base import GraphPrior
from scool_ppl.look.evidence import Evidence


class Box(GraphPrior):
    """Y_ij ~ Uniform[0, 1]; inferred as a point mass, by ProjectedGradient. `start` is the weight of every edge at first.

    Subclass it and override `log_density` for a density that is not flat.
    """

    kind = "point"

    def __init__(self, num_clients: int, start: float = 0.5) -> None:
        super().__init__(num_clients)
        if not 0 <= start <= 1:
            raise InputError(f"Box has start={start}, expected a weight in [0, 1]")
        self.start = start
        # torch's Uniform leaves out its upper end, where many weights are.
        self.register_buffer("upper", torch.tensor(1 + 1e-6, dtype=torch.float64))

    def model(self, evidence: Evidence) -> Tensor:
        with self.edges:
            graph = pyro.sample("Y", dist.Uniform(torch.zeros_like(self.upper), self.upper))
        density = self.log_density(torch.where(evidence.peers.mask, graph, torch.zeros_like(graph)))
        if density is not None:
            pyro.factor("density", density)
        return graph

    def log_density(self, graph: Tensor) -> Tensor | None:
        """log P(Y) up to a constant, masked pairs being 0; None is flat."""
        return None

    def initial_graph(self) -> Tensor:
        return torch.full((self.num_clients, self.num_clients), self.start, dtype=torch.float64).fill_diagonal_(0)
