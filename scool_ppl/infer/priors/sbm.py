"""SBM: the stochastic block model of SCooL."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroParam
from torch import Tensor

from scool_ppl.base.arguments import positive, whole
from scool_ppl.errors import InputError
from scool_ppl.infer.distributions import BlockBernoulli, OneHot
from scool_ppl.infer.priors.base import GraphPrior
from scool_ppl.infer.priors.spectral import count_communities, soft, sparse_communities, spectral_memberships
from scool_ppl.look.evidence import Evidence


class SBM(GraphPrior):
    """Clients belong to blocks; blocks decide who learns from whom (SCooL 4.2).

        pi_i ~ Dirichlet(alpha),  z_i ~ Categorical(pi_i),  Y_ij ~ Bernoulli(B[z_i, z_j])

    B (G, G) and alpha (G,) are learned; B stays within [clamp, 1 - clamp], which keeps the prior from overruling the
    evidence. More blocks than groups are harmless, fewer are not. `inside` and `outside` are B's start on and off the
    diagonal: an assortative start, without which the blocks dissolve. `spectral=False` starts the memberships at
    random. `temper` > 1 weakens the prior's say on every edge: log P(Y | z) / temper.
    """

    def __init__(
        self,
        num_clients: int,
        num_blocks: int = 8,
        *,
        alpha: float = 1.0,
        inside: float = 0.9,
        outside: float = 0.1,
        clamp: float = 0.1,
        learn_alpha: bool = True,
        spectral: bool = True,
        temper: float = 1.0,
    ) -> None:
        super().__init__(num_clients)
        if not whole(num_blocks) or not positive(alpha, temper) or not 0 < clamp < 0.5:
            raise InputError(
                f"SBM(num_blocks={num_blocks}, alpha={alpha}, temper={temper}, clamp={clamp}): expected at least one "
                "block, a positive alpha and temper, and a clamp between 0 and 0.5"
            )
        if not 0 < outside < inside < 1:
            raise InputError(f"SBM(inside={inside}, outside={outside}): expected 0 < outside < inside < 1")
        self.num_blocks, self.clamp, self.spectral, self.temper = num_blocks, clamp, spectral, temper
        start = torch.full((num_blocks, num_blocks), outside).fill_diagonal_(inside).clamp(clamp, 1 - clamp)
        self.B = PyroParam(start, constraint=dist.constraints.interval(clamp, 1 - clamp))
        concentration = torch.full((num_blocks,), alpha)
        if learn_alpha:
            self.alpha = PyroParam(
                concentration, constraint=dist.constraints.interval(min(0.01, alpha / 2), 100 * alpha)
            )
        else:
            self.register_buffer("alpha", concentration)

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            pi = pyro.sample("pi", dist.Dirichlet(self.alpha))
            z = pyro.sample("z", OneHot(pi))
        with self.edges:
            return self.sample_edges(self.receiver(z), self.sender(z))

    def sample_edges(self, receiver: Tensor, sender: Tensor) -> Tensor:
        """Y_ij ~ Bernoulli(z_i' B z_j)^(1 / temper), inside `self.edges`."""
        return pyro.sample("Y", BlockBernoulli(receiver, sender, self.B, temper=self.temper))

    def closed_form(self, moments: dict[str, Tensor], evidence: Evidence) -> dict[str, Tensor]:
        """B_gh = sum w_ij Omega_ig Omega_jh / sum Omega_ig Omega_jh over looked-at pairs; empty blocks keep theirs."""
        graph, z = moments["Y"], moments["z"]
        edges = z.T @ evidence.peers.combine(graph, z)
        pairs = z.T @ evidence.peers.combine(None, z)
        return {"B": self.density(edges, pairs)}

    def density(self, edges: Tensor, pairs: Tensor) -> Tensor:
        """edges / pairs (G, G) within the clamps; B as it is where there are no pairs."""
        density = torch.where(pairs > 1e-10, edges / pairs.clamp(min=1e-10), self.B.detach())
        return density.clamp(self.clamp, 1 - self.clamp)

    def starts(self, evidence: Evidence, log_lik: Tensor, generator: torch.Generator) -> list[dict[str, Tensor]]:
        """Memberships from spectral clustering of sigmoid(log_lik): as many clusters as stand out, and all blocks."""
        if not self.spectral:
            return []
        most = min(self.num_blocks, self.num_clients)
        if evidence.peers.is_table and 2 * evidence.peers.mask.shape[1] <= self.num_clients:
            labels = sparse_communities(evidence.peers, log_lik.sigmoid(), most, generator)
            return [{"z": soft(labels, self.num_blocks)}]
        affinity = evidence.peers.dense(log_lik.sigmoid())
        affinity = (affinity + affinity.T) / 2 + 1e-3  # connected, as the Laplacian needs
        counts = sorted({count_communities(affinity, most), most})
        return [{"z": spectral_memberships(affinity, count, self.num_blocks, generator)} for count in counts]
