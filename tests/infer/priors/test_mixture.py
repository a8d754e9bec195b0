"""ModelMixture against its printed update, enumeration and its own draws."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from scool_ppl import (
    InputError,
    MomentELBO,
    NaturalGradient,
    SVIStep,
)
from scool_ppl.infer.enumeration import enumerated_bound
from scool_ppl.infer.estep import EStep
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.priors.mixture import ModelMixture
from tests.helpers.evidence import random_log_lik
from tests.helpers.priors import (
    check_draws_of_rows,
    mixed_evidence,
    mixing,
    rng,
    rows_over,
    scattered,
    with_self,
)
from tests.helpers.small import close, normal


@pytest.mark.parametrize("mask", [torch.ones(4, 4, dtype=torch.bool), with_self(4)])
def test_a_step_of_the_mixture_equals_the_printed_update(mask: Tensor) -> None:
    log_lik, log_pi = random_log_lik(4), normal(4, 4, seed=3)
    found = NaturalGradient()(Joint(mixing(4, log_pi=log_pi), log_lik), mixed_evidence(log_lik, mask), {}, rng())
    close(found.moments["Y"], rows_over(mask, log_pi + log_lik))
    # The bound at the optimum is the log-evidence of the mixture, sum_i log sum_j Pi_ij P(D_i | theta_j).
    pi = rows_over(mask, log_pi)
    evidence = sum(float((pi[i] * log_lik[i].exp()).sum().log()) for i in range(4))
    assert found.elbo == pytest.approx(evidence, abs=1e-10)


@pytest.mark.parametrize(
    ("step", "atol"),
    [(NaturalGradient(sweeps=1), 1e-10), (NaturalGradient(), 1e-10), (SVIStep(steps=500), 0.02)],
    ids=["one sweep", "many", "SVI"],
)
def test_the_learned_mixture_is_its_posterior_and_counts_every_round_once(step: EStep, atol: float) -> None:
    prior, total = mixing(4, learn=True), torch.zeros(4, 4).double()
    for round in range(3):
        log_lik = random_log_lik(4, seed=round)
        total = total + log_lik
        found = step(Joint(prior, log_lik), mixed_evidence(log_lik), {}, rng())
        close(found.moments["Y"], total.softmax(1), atol)
        close(prior.log_pi.exp(), found.moments["Y"])


def test_who_is_not_looked_at_keeps_its_share_of_the_learned_mixture() -> None:
    """Pi is a distribution over all clients; w divides among the candidates what they had together."""
    prior, pi = mixing(4, learn=True), torch.full((4, 4), 0.25, dtype=torch.float64)
    for round, mask in enumerate((with_self(4), torch.eye(4, dtype=torch.bool) | with_self(4).T, with_self(4))):
        log_lik = random_log_lik(4, seed=round)
        found = NaturalGradient(sweeps=1)(Joint(prior, log_lik), mixed_evidence(log_lik, mask), {}, rng())
        for i in range(4):
            seen = mask[i].nonzero().flatten().tolist()
            together = float(pi[i, seen].sum())
            w = (pi[i, seen].log() + log_lik[i, seen]).softmax(0)
            close(found.moments["Y"][i, seen], w)
            pi[i, seen] = together * w
        close(prior.log_pi.exp(), pi)
        close(pi.sum(1), torch.ones(4))


def test_the_floor_keeps_a_hopeless_candidate_in_reach() -> None:
    prior = ModelMixture(2, learn=True, floor=1e-3).double()
    log_lik = torch.tensor([[0.0, -50.0], [-50.0, 0.0]], dtype=torch.float64)
    NaturalGradient(sweeps=1)(Joint(prior, log_lik), mixed_evidence(log_lik), {}, rng())
    close(prior.log_pi[0, 1].exp(), torch.tensor(1e-3))
    for floor in (0.0, 1.0):
        with pytest.raises(InputError, match="expected a probability"):
            ModelMixture(2, floor=floor)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_of_the_mixture_equals_enumeration(seed: int) -> None:
    log_lik, log_pi = random_log_lik(3, seed), normal(3, 3, seed=3)
    joint, evidence = Joint(mixing(3, log_pi=log_pi), log_lik), mixed_evidence(log_lik)
    guide = scattered(joint, evidence, seed)
    q, pi = guide.distribution("Y").mean.detach(), log_pi.softmax(1)
    total = 0.0
    for row in itertools.product(range(3), repeat=3):
        weight = math.prod(float(q[i, j]) for i, j in enumerate(row))
        log_p = sum(float(log_lik[i, j] + pi[i, j].log()) for i, j in enumerate(row))
        total += weight * (log_p - math.log(weight))
    exact = float(MomentELBO().bound(joint, guide, evidence).detach())
    assert exact == pytest.approx(total, abs=1e-8)
    assert exact == pytest.approx(enumerated_bound(joint, guide, evidence), abs=1e-8)


def test_draws_have_the_probabilities_of_pi_and_never_choose_the_masked() -> None:
    mask, log_pi = with_self(4), normal(4, 4, seed=3)
    check_draws_of_rows(mixing(4, log_pi=log_pi), mixed_evidence(random_log_lik(4), mask), rows_over(mask, log_pi))
