"""ModelMixture: each client's data come from one of the clients' models (FedeRiCo)."""

from __future__ import annotations

import math

import pyro
import torch
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.infer.distributions import OneHot
from scool_ppl.infer.priors.base import GraphPrior
from scool_ppl.look.evidence import Evidence


class ModelMixture(GraphPrior):
    """z_i ~ Categorical(Pi_i), Y_i the one-hot row of z_i: client i's data are explained by model z_i.

    Rows may choose the client itself. With `learn`, Pi_ij = w_ij, the closed form of the M-step, so that w becomes the
    softmax of the accumulated loss; otherwise Pi is uniform.
    """

    includes_self = True
    kind = "rows"
    client_axes = {"log_pi": (0, 1)}
    accumulates = True  # Pi times exp of a round's evidence is the next round's Pi

    def __init__(self, num_clients: int, *, learn: bool = False, floor: float = 1e-12) -> None:
        super().__init__(num_clients)
        if not 0 < floor < 1:
            raise InputError(f"ModelMixture has floor={floor}, expected a probability in (0, 1)")
        self.learn, self.floor = learn, floor
        self.register_buffer(
            "log_pi", torch.full((num_clients, num_clients), -math.log(num_clients), dtype=torch.float64)
        )

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            return pyro.sample("Y", OneHot(logits=self.row_logits(evidence.peers.take(self.log_pi))))

    def closed_form(self, moments: dict[str, Tensor], evidence: Evidence) -> dict[str, Tensor]:
        """Pi_ij = w_ij, at least `floor`; those who take no part keep theirs, and w divides the rest."""
        if not self.learn:
            return {}
        peers, dense = evidence.peers, torch.zeros_like(self.log_pi)
        seen = peers.dense(peers.mask.to(dense)) > 0
        learned = peers.dense(moments["Y"].to(dense)).clamp(min=self.floor).log()
        rest = self.log_pi.masked_fill(~seen, -torch.inf).logsumexp(1, keepdim=True)
        return {"log_pi": torch.where(seen, learned + rest, self.log_pi)}
