"""Likelihoods: how the evidence of a round scores the graph, as log-odds in nats for every looked-at pair."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from scool_ppl.base.arguments import positive
from scool_ppl.errors import InputError, unknown
from scool_ppl.look.evidence import Distance, Evidence, Need
from scool_ppl.train.round_start import Memory, Remembered

Reference = Literal["midpoint", "uniform", "marginal", "none"]

HOPELESS = -1e6  # nats: no prior makes up for it, and bounds can still be computed with it


def for_pairs(log_lik: Tensor, mask: Tensor) -> Tensor:
    """log_lik of the pairs in the mask, 0 elsewhere; where a network has diverged, so low that nobody chooses it."""
    finite = log_lik.nan_to_num(HOPELESS, HOPELESS).clamp(min=HOPELESS)
    return torch.where(mask, finite, torch.zeros_like(finite))


class Likelihood:
    """Maps evidence to log_lik (K, M), log P(D | Y_ij = 1) - log P(D | Y_ij = 0), or to a function of the graph (K, M)
    that returns log P(D | Y), where that is not a sum over pairs.
    """

    @property
    def needs(self) -> Collection[Need]:
        """What it reads of the evidence; nothing means that the candidates' networks are not looked at."""
        return ()

    def __call__(self, evidence: Evidence) -> Tensor | Callable[[Tensor], Tensor]:
        raise InputError(f"{type(self).__name__} has no `__call__`; write one that scores the evidence")

    def to_remember(self, evidence: Evidence, log_lik: Tensor | Callable[[Tensor], Tensor]) -> Memory:
        """What it wants to read next round in `evidence.memory`, given the scores that it returned."""
        return {}


@dataclass(frozen=True)
class RowWise:
    """log P(D | Y) = sum_i f_i(Y_i) as a function of the graph (K, M): of whom a client hears its own data depend alone.

    rows: of receivers (N,) and rows of graphs (N, M) the terms f_i (N,). A graph that differs in few rows from one that
    has been scored is scored by these.
    """

    rows: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, graph: Tensor) -> Tensor:
        return self.rows(torch.arange(len(graph)), graph).sum()


@dataclass(frozen=True)
class Ignored(Likelihood):
    """P(D | theta) does not involve Y (case 1.1): no pair is favoured, the posterior of Y is its prior."""

    def __call__(self, evidence: Evidence) -> Tensor:
        return torch.zeros(evidence.peers.mask.shape)


@dataclass(frozen=True)
class CrossLoss(Likelihood):
    """P(D | theta, Y) = prod_i P(D_i | theta_i) prod_{j != i} P(D_j | theta_i)^{Y_ij} (case 1.2), against a reference.

        log_lik[i, j] = n_eff (R_j - L_ij) / temperature

    L_ij is the mean loss of model i on client j's data, averaged with L_ji if `symmetric`. R_j is the loss of a
    reference model: "midpoint" half way between what cooperation can reach and chance, "uniform" chance, log C for C
    classes, "marginal" as midpoint but with the entropy of client j's labels for chance, "none" zero, which is the raw
    log-likelihood of the paper, under which cooperating never wins. Tasks say what chance and that entropy are to them.
    """

    n_eff: float = 5.0
    temperature: float = 1.0
    reference: Reference = "midpoint"
    symmetric: bool = True

    def __post_init__(self) -> None:
        if not positive(self.n_eff, self.temperature):
            raise InputError(
                f"CrossLoss(n_eff={self.n_eff}, temperature={self.temperature}): expected both to be positive"
            )
        if self.reference not in get_args(Reference):
            raise unknown("reference", str(self.reference), get_args(Reference))

    def __call__(self, evidence: Evidence) -> Tensor:
        peers = evidence.peers.fresh
        loss = evidence.loss
        reference = self.reference_loss(evidence)
        expected = peers.gather(reference).expand_as(loss)
        if self.symmetric:
            loss = (loss + evidence.loss_received) / 2
            expected = (expected + reference.unsqueeze(1)) / 2
        return for_pairs(self.n_eff * (expected - loss) / self.temperature, peers.mask)

    @property
    def needs(self) -> Collection[Need]:
        received = self.symmetric or self.reference in ("midpoint", "marginal")
        return ("loss", *["loss_received"] * received, *["label_entropy"] * (self.reference == "marginal"))

    def reference_loss(self, evidence: Evidence) -> Tensor:
        """R_j for every client j, (K,)."""
        if self.reference == "none":
            return evidence.loss.new_zeros(evidence.num_clients)
        chance = evidence.chance.expand(evidence.num_clients)
        if self.reference == "uniform":
            return chance
        best = self._best(evidence)
        if self.reference == "marginal":
            chance = evidence.label_entropy
        return (torch.minimum(best, chance) + chance) / 2

    def _best(self, evidence: Evidence) -> Tensor:
        """Mean over clients j of the mean of the two lowest losses that other clients' models have on D_j."""
        peers = evidence.peers.fresh
        others = peers.mask & ~peers.own()
        loss = evidence.loss_received.masked_fill(~others, torch.inf)
        lowest = loss.sort(dim=1).values[:, :2]
        seen = lowest.isfinite()
        mean = torch.where(seen, lowest, torch.zeros_like(lowest)).sum(1) / seen.sum(1).clamp(min=1)
        heard = seen.any(1)
        return mean[heard].mean() if heard.any() else evidence.chance


@dataclass(frozen=True)
class ModelMixture(Likelihood):
    """P(D_i | z_i = j) = P(D_i | theta_j): log_lik[i, j] = -n_eff L_ji / temperature (FedeRiCo).

    L_ji is the mean loss of the *sender's* model on the receiver's data. With `average` beta, log_lik is the moving
    average of the rounds, (1 - beta) last + beta new, else what the last look said; it is remembered as "mixture"
    (K, K). Pairs never looked at stay masked, and the first look at a pair counts in full.
    """

    needs = ("loss_received",)
    n_eff: float = 5.0
    temperature: float = 1.0
    average: float | None = None

    def __post_init__(self) -> None:
        share = self.average is None or (positive(self.average) and self.average <= 1)
        if not positive(self.n_eff, self.temperature) or not share:
            raise InputError(
                f"ModelMixture(n_eff={self.n_eff}, temperature={self.temperature}, average={self.average}): expected "
                "positive numbers and an average in (0, 1] or none"
            )

    def __call__(self, evidence: Evidence) -> Tensor:
        peers = evidence.peers
        new = for_pairs(-self.n_eff * evidence.loss_received.double() / self.temperature, peers.fresh.mask)
        share = 1.0 if self.average is None else self.average
        last = peers.take(self._last(evidence))
        blended = torch.where(last.isnan(), new, (1 - share) * last + share * new)
        log_lik = torch.where(peers.fresh.mask, blended, last)
        return torch.where(peers.mask, log_lik, torch.zeros_like(log_lik))

    def to_remember(self, evidence: Evidence, log_lik: Tensor | Callable[[Tensor], Tensor]) -> Memory:
        """The averages of all pairs that were ever looked at."""
        assert isinstance(log_lik, Tensor)
        peers = evidence.peers
        known = peers.dense(peers.mask.double()) > 0
        return {"mixture": Remembered(torch.where(known, peers.dense(log_lik), self._last(evidence)), (0, 1))}

    def _last(self, evidence: Evidence) -> Tensor:
        """The averages so far, (K, K), NaN of pairs never looked at."""
        if "mixture" in evidence.memory:
            return evidence.memory["mixture"].value
        return torch.full((evidence.num_clients,) * 2, torch.nan, dtype=torch.float64)


@dataclass(frozen=True)
class GradientAlignment(Likelihood):
    """log_lik[i, j] = a_ij / temperature, a_ij = <grad f_i(m_ij), grad f_j(m_ij)> at m_ij = (theta_i + theta_j) / 2
    (CoBo); 0 for pairs that are not looked at this round. f_i is the loss on client i's probe batch.
    """

    needs = ("alignment",)
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not positive(self.temperature):
            raise InputError(f"GradientAlignment has temperature={self.temperature}, expected a positive number")

    def __call__(self, evidence: Evidence) -> Tensor:
        return for_pairs(evidence.alignment / self.temperature, evidence.peers.fresh.mask)


@dataclass(frozen=True)
class UpdateCosine(Likelihood):
    """log_lik[i, j] = strength cos(u_i, u_j), u_i how far client i's network has come since the start (pFedGraph)."""

    needs = ("updates",)
    strength: float = 1.0

    def __post_init__(self) -> None:
        if not positive(self.strength):
            raise InputError(f"UpdateCosine has strength={self.strength}, expected a positive number")

    def __call__(self, evidence: Evidence) -> Tensor:
        return for_pairs(self.strength * evidence.update_cosine, evidence.peers.mask)


@dataclass(frozen=True)
class MixedValidation(Likelihood):
    """log P(D_val | Y) = -n_eff sum_i V_i(theta_i^t + sum_j Y_ij Delta_j), V_i the loss on client i's validation data
    (L2C). Not a sum over pairs: a function of the graph, differentiable.
    """

    needs = ("mixed_validation",)
    n_eff: float = 1.0

    def __post_init__(self) -> None:
        if not positive(self.n_eff):
            raise InputError(f"MixedValidation has n_eff={self.n_eff}, expected a positive number")

    def __call__(self, evidence: Evidence) -> Callable[[Tensor], Tensor]:
        return lambda graph: -self.n_eff * evidence.mixed_validation(graph).sum()


@dataclass(frozen=True)
class ModelDistance(Likelihood):
    """log P(theta | Y) = -kappa / 2 sum_ij Y_ij |theta_i - theta_j|^2, in units of the mean squared distance (case 2.1)."""

    needs = (Distance(trained=True),)
    kappa: float = 1.0

    def __post_init__(self) -> None:
        if not positive(self.kappa):
            raise InputError(f"ModelDistance has kappa={self.kappa}, expected a positive number")

    def __call__(self, evidence: Evidence) -> Tensor:
        squared = evidence.distance(trained=True).square()
        mask = evidence.peers.mask
        known = squared[mask & squared.isfinite()]
        mean = known.mean().clamp(min=1e-12) if len(known) else torch.ones(())
        return for_pairs(-self.kappa / 2 * squared / mean, mask)
