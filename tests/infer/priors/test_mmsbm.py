"""MMSBM against the printed updates, enumeration by hand and its own draws."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from pyro.infer import Predictive
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence

from scool_ppl import (
    AutoMeanField,
    MomentELBO,
    NaturalGradient,
)
from scool_ppl.infer.enumeration import enumerated_bound
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.priors.mmsbm import MMSBM
from tests.helpers.evidence import evidence_of, planted, random_log_lik
from tests.helpers.priors import (
    mmsbm,
    rng,
    scattered,
    some_masked,
)
from tests.helpers.small import close, normal


class PrintedMMSBM:
    """The updates as the papers print them, misprints corrected, with explicit loops over pairs."""

    def __init__(self, log_lik: Tensor, mask: Tensor, phi: tuple[Tensor, Tensor], B: Tensor, alpha: Tensor) -> None:
        self.ell, self.B, self.alpha = log_lik, B.clone(), alpha
        self.out, self.into = (part.clone() for part in phi)  # z_{i->j} and z_{i<-j}
        self.pairs = [tuple(pair) for pair in mask.nonzero().tolist()]
        self.w = torch.full_like(log_lik, 0.5)

    def update_w(self) -> None:
        odds = self.B.log() - (1 - self.B).log()
        for i, j in self.pairs:
            self.w[i, j] = torch.sigmoid(self.ell[i, j] + self.out[i, j] @ odds @ self.into[i, j])

    def update_gamma(self) -> None:
        self.gamma = self.alpha.expand(len(self.ell), -1).clone()
        for i, j in self.pairs:
            self.gamma[i] += self.out[i, j]
            self.gamma[j] += self.into[i, j]

    def log_prior(self, client: int) -> Tensor:
        return self.gamma[client].digamma() - self.gamma[client].sum().digamma()

    def between(self, i: int, j: int) -> Tensor:
        return self.w[i, j] * self.B.log() + (1 - self.w[i, j]) * (1 - self.B).log()

    def update_out(self) -> None:
        for i, j in self.pairs:
            self.out[i, j] = (self.log_prior(i) + self.between(i, j) @ self.into[i, j]).softmax(0)

    def update_into(self) -> None:
        for i, j in self.pairs:
            self.into[i, j] = (self.log_prior(j) + self.between(i, j).T @ self.out[i, j]).softmax(0)

    def update_blocks(self, clamp: float) -> None:
        edges, total = torch.zeros_like(self.B), torch.zeros_like(self.B)
        for i, j in self.pairs:
            outer = self.out[i, j][:, None] * self.into[i, j]
            edges += self.w[i, j] * outer
            total += outer
        self.B = (edges / total).clamp(clamp, 1 - clamp)


@pytest.mark.parametrize("mask", [~torch.eye(5, dtype=torch.bool), some_masked(5)])
def test_a_sweep_of_the_mmsbm_equals_the_printed_updates(mask: Tensor) -> None:
    log_lik = random_log_lik(5)
    prior = mmsbm(5, 3, alpha=0.8, clamp=0.05, learn_alpha=False)
    start = {f"z_{role}_logits": normal(5, 5, 3, seed=seed) for seed, role in enumerate(("receiver", "sender"))}
    phi = start["z_receiver_logits"].softmax(-1), start["z_sender_logits"].softmax(-1)
    printed = PrintedMMSBM(log_lik, mask, phi, prior.B.detach(), prior.alpha)
    step = NaturalGradient(sweeps=1, keep=1.0)
    for sweep in range(2):
        found = step(Joint(prior, log_lik), evidence_of(log_lik, mask), start, rng())
        printed.update_w()
        printed.update_gamma()
        printed.update_out()
        printed.update_into()
        printed.update_blocks(clamp=0.05)
        close(found.moments["Y"][mask], printed.w[mask])
        close(found.q["pi_concentration"], printed.gamma)
        close(found.moments["z_receiver"][mask], printed.out[mask])
        close(found.moments["z_sender"][mask], printed.into[mask])
        close(prior.B, printed.B)
        start = found.q
        assert sweep or float((printed.B - 0.5).abs().max()) > 0.1


def enumerated_mmsbm(guide: AutoMeanField, prior: MMSBM, log_lik: Tensor, pairs: list[tuple[int, int]]) -> float:
    """The bound over every edge and every pair of memberships, with nothing of the library's densities."""
    q = {name: guide.distribution(name).mean.detach() for name in ("Y", "z_receiver", "z_sender")}
    gamma = guide.distribution("pi").concentration.detach()
    alpha = prior.alpha.detach().expand_as(gamma)
    log_pi = gamma.digamma() - gamma.sum(-1, keepdim=True).digamma()
    B = prior.B.detach()
    total = -float(kl_divergence(Dirichlet(gamma), Dirichlet(alpha)).sum())
    # Given q(pi), pairs are independent, so each may be enumerated by itself.
    for i, j in pairs:
        for y, g, h in itertools.product((0, 1), range(len(B)), range(len(B))):
            weight = float(
                (q["Y"][i, j] if y else 1 - q["Y"][i, j]) * q["z_receiver"][i, j, g] * q["z_sender"][i, j, h]
            )
            log_p = y * log_lik[i, j] + log_pi[i, g] + log_pi[j, h] + (B[g, h] if y else 1 - B[g, h]).log()
            total += weight * (float(log_p) - math.log(weight))
    return total


@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_of_the_mmsbm_equals_enumeration(seed: int) -> None:
    for num_clients, kept in ((2, None), (3, [(0, 1), (1, 0), (2, 0)]), (4, None)):
        log_lik = random_log_lik(num_clients, seed)
        prior = mmsbm(num_clients, alpha=0.7)
        prior.B = torch.tensor([[0.85, 0.3], [0.2, 0.6]], dtype=torch.float64)
        mask = torch.ones(num_clients, num_clients, dtype=torch.bool)
        pairs = [(i, j) for i in range(num_clients) for j in range(num_clients) if i != j]
        if kept is not None:
            mask, pairs = torch.zeros_like(mask), kept
            for pair in kept:
                mask[pair] = True
        joint, evidence = Joint(prior, log_lik), evidence_of(log_lik, mask)
        guide = scattered(joint, evidence, seed)
        exact = float(MomentELBO().bound(joint, guide, evidence).detach())
        assert exact == pytest.approx(enumerated_mmsbm(guide, prior, log_lik, pairs), abs=1e-8)
        if num_clients < 4:
            assert exact == pytest.approx(enumerated_bound(joint, guide, evidence), abs=1e-8)


def test_the_mmsbm_finds_planted_groups_and_starts_from_clusters() -> None:
    group, log_lik = planted(9, 3, noise=0.7)
    # A flat Dirichlet is no prior for few clients: pairs choose freely, and the blocks dissolve.
    prior, evidence = mmsbm(9, 3, alpha=0.1, learn_alpha=False), evidence_of(log_lik)
    start = prior.starts(evidence, log_lik, rng())[-1]
    for i, j in itertools.permutations(range(9), 2):
        assert torch.equal(start["z_receiver"][i, j].argmax(), start["z_receiver"][i, 0].argmax())
        assert torch.equal(start["z_sender"][i, j].argmax(), start["z_receiver"][j, 0].argmax())
        same = bool(group[i] == group[j])
        assert (start["z_receiver"][i, j].argmax() == start["z_sender"][i, j].argmax()) == same
    found = NaturalGradient()(Joint(prior, log_lik), evidence, {}, rng())
    off = ~torch.eye(9, dtype=torch.bool)
    assert torch.equal((found.moments["Y"] > 0.5)[off], (group[:, None] == group)[off])


def test_draws_of_the_mmsbm_have_the_density_of_their_blocks() -> None:
    prior = mmsbm(3, alpha=0.5)
    prior.B = torch.tensor([[0.85, 0.3], [0.15, 0.6]], dtype=torch.float64)
    evidence = evidence_of(random_log_lik(3))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sites = ["Y", "z_receiver", "z_sender"]
        draws = Predictive(prior, num_samples=600, return_sites=sites)(evidence)
    edge = draws["Y"].view(-1, 3, 3)[:, 0, 1]
    g, h = (draws[site].view(-1, 3, 3, 2)[:, 0, 1].argmax(-1) for site in sites[1:])
    for row, column in itertools.product(range(2), repeat=2):
        chosen = edge[(g == row) & (h == column)].double()
        density = float(prior.B.detach()[row, column])
        assert len(chosen) > 100
        assert float(chosen.mean()) == pytest.approx(density, abs=5 * (density * (1 - density) / len(chosen)) ** 0.5)
    # z_{0->1} and z_{0->2} come from the same pi_0, z_{1->0} does not.
    blocks = draws["z_receiver"].view(-1, 3, 3, 2).argmax(-1)
    agree = (blocks[:, 0, 1] == blocks[:, 0, 2]).double().mean()
    apart = (blocks[:, 0, 1] == blocks[:, 1, 0]).double().mean()
    # E[sum_g pi_g^2] = (alpha + 1) / (G alpha + 1) under Dirichlet(alpha, alpha).
    assert float(agree) == pytest.approx(1.5 / 2, abs=0.09)  # five times the error of a share of 600
    assert float(apart) == pytest.approx(0.5, abs=0.1)
