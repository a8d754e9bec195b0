"""MMSBM: the mixed-membership block model of SCooL."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from scool_ppl.infer.distributions import OneHot
from scool_ppl.infer.priors.sbm import SBM
from scool_ppl.look.evidence import Evidence


class MMSBM(SBM):
    """Clients belong to several blocks, and choose one anew for every pair (SCooL appendix F).

        pi_i ~ Dirichlet(alpha),  z_{i->j} ~ Categorical(pi_i),  z_{i<-j} ~ Categorical(pi_j)
        Y_ij ~ Bernoulli(z_{i->j}' B z_{i<-j})

    Sites "z_receiver" and "z_sender" (K, M, G) are the two memberships of a pair. B, alpha and their options as in SBM.
    """

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            pi = pyro.sample("pi", dist.Dirichlet(self.alpha))
        with self.edges:
            receiver = pyro.sample("z_receiver", OneHot(self.receiver(pi)))
            sender = pyro.sample("z_sender", OneHot(self.sender(pi)))
            return self.sample_edges(receiver, sender)

    def closed_form(self, moments: dict[str, Tensor], evidence: Evidence) -> dict[str, Tensor]:
        """B_gh = sum w_ij phi->_ijg phi<-_ijh / sum phi->_ijg phi<-_ijh over looked-at pairs."""
        mask = evidence.peers.mask.to(moments["Y"])
        edges, pairs = (
            torch.einsum("km,kmg,kmh->gh", weight, moments["z_receiver"], moments["z_sender"])
            for weight in (mask * moments["Y"], mask)
        )
        return {"B": self.density(edges, pairs)}

    def starts(self, evidence: Evidence, log_lik: Tensor, generator: torch.Generator) -> list[dict[str, Tensor]]:
        """Every pair's memberships are its two clients', from spectral clustering as in SBM."""
        shape = (*evidence.peers.mask.shape, self.num_blocks)
        return [
            {
                "z_receiver": start["z"].unsqueeze(1).expand(shape),
                "z_sender": evidence.peers.gather(start["z"]).expand(shape),
            }
            for start in super().starts(evidence, log_lik, generator)
        ]
