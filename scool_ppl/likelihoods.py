"""Likelihoods: how the evidence of a round scores the graph, as log-odds in nats for every looked-at pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, get_args

import torch
from torch import Tensor

from scool_ppl.errors import InputError, unknown
from scool_ppl.evidence import Evidence

Reference = Literal["midpoint", "uniform", "marginal", "none"]


class Likelihood(Protocol):
    """Maps evidence to log_lik (K, M): log P(D | Y_ij = 1) - log P(D | Y_ij = 0).

    `looks` says whether it needs the candidates' networks at all.
    """

    @property
    def looks(self) -> bool: ...

    def __call__(self, evidence: Evidence) -> Tensor: ...


@dataclass(frozen=True)
class Ignored:
    """P(D | theta) does not involve Y (case 1.1): no pair is favoured, the posterior of Y is its prior."""

    looks: ClassVar[bool] = False

    def __call__(self, evidence: Evidence) -> Tensor:
        return torch.zeros(evidence.peers.mask.shape)


@dataclass(frozen=True)
class CrossLoss:
    """P(D | theta, Y) = prod_i P(D_i | theta_i) prod_{j != i} P(D_j | theta_i)^{Y_ij} (case 1.2), against a reference.

        log_lik[i, j] = n_eff (R_j - L_ij) / temperature

    L_ij is the mean loss of model i on client j's data, averaged with L_ji if `symmetric`. R_j is the loss of a
    reference model: "midpoint" half way between what cooperation can reach and chance, "uniform" the loss of uniform
    guessing log C, "marginal" as midpoint but with the entropy of client j's labels for chance, "none" zero, which is
    the raw log-likelihood of the paper, under which cooperating never wins.
    """

    looks: ClassVar[bool] = True
    n_eff: float = 5.0
    temperature: float = 1.0
    reference: Reference = "midpoint"
    symmetric: bool = True

    def __post_init__(self) -> None:
        if self.n_eff <= 0 or self.temperature <= 0:
            raise InputError(
                f"CrossLoss(n_eff={self.n_eff}, temperature={self.temperature}): expected both to be positive"
            )
        if self.reference not in get_args(Reference):
            raise unknown("reference", str(self.reference), get_args(Reference))

    def __call__(self, evidence: Evidence) -> Tensor:
        peers = evidence.peers
        loss = evidence.loss
        reference = self.reference_loss(evidence)
        expected = peers.gather(reference).expand_as(loss)
        if self.symmetric:
            loss = (loss + evidence.loss_received) / 2
            expected = (expected + reference.unsqueeze(1)) / 2
        log_lik = self.n_eff * (expected - loss) / self.temperature
        return torch.where(peers.mask, log_lik, torch.zeros_like(log_lik))

    def reference_loss(self, evidence: Evidence) -> Tensor:
        """R_j for every client j, (K,)."""
        chance = evidence.chance.expand(evidence.num_clients)
        if self.reference == "none":
            return torch.zeros_like(chance)
        if self.reference == "uniform":
            return chance
        best = self._best(evidence)
        if self.reference == "marginal":
            chance = evidence.label_entropy
        return (torch.minimum(best, chance) + chance) / 2

    def _best(self, evidence: Evidence) -> Tensor:
        """Mean over clients j of the mean of the two lowest losses that other clients' models have on D_j."""
        others = evidence.peers.mask.clone()
        if evidence.peers.senders is None:
            others.fill_diagonal_(False)
        else:
            others &= evidence.peers.senders != torch.arange(evidence.num_clients)[:, None]
        loss = evidence.loss_received.masked_fill(~others, torch.inf)
        lowest = loss.sort(dim=1).values[:, :2]
        seen = lowest.isfinite()
        mean = torch.where(seen, lowest, torch.zeros_like(lowest)).sum(1) / seen.sum(1).clamp(min=1)
        heard = seen.any(1)
        return mean[heard].mean() if heard.any() else evidence.chance
