"""Hierarchical stacking against the variational EM written out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import digamma, gammaln, logsumexp
from torch import Tensor

from scool_ppl import InputError
from scool_ppl.base import generator
from scool_ppl.deploy import Stacked, stack
from scool_ppl.deploy.stacking import LEAST, SEARCH, Stacking, checked
from tests.helpers.small import close, normal


def log_likelihoods(num_clients: int, candidates: int, images: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Candidates that are right or wrong together and each on its own, and clients with fewer and fewer images."""
    together = normal(num_clients, 1, images, seed=seed)
    log_p = torch.nn.functional.logsigmoid(1 + together + 2 * normal(num_clients, candidates, images, seed=seed + 1))
    return log_p, torch.arange(images) < images - torch.arange(num_clients)[:, None] * (images // 5)


def by_hand(log_p: Tensor, mask: Tensor, alpha: float) -> tuple[Tensor, Tensor, float]:
    """w (K, C), m (C,) and the bound: for each m the r and gamma that belong together, and the best of all m."""
    ell, there = log_p.numpy(), mask.numpy().astype(float)[:, None]
    num_clients, candidates, _ = ell.shape

    def profile(logits: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """The bound at this m with the best q, its slope in the logits, m and gamma."""
        share = np.exp(logits - logsumexp(logits))
        m = (alpha * share + LEAST) / (alpha + LEAST * candidates)
        gamma = alpha * m + (there * np.exp(ell - logsumexp(ell, 1, keepdims=True))).sum(2)
        for _ in range(5000):
            log_w = digamma(gamma) - digamma(gamma.sum(1, keepdims=True))
            r = there * np.exp(log_w[:, :, None] + ell - logsumexp(log_w[:, :, None] + ell, 1, keepdims=True))
            before, gamma = gamma, alpha * m + r.sum(2)
            if abs(gamma - before).max() < 1e-12:
                break
        log_w = digamma(gamma) - digamma(gamma.sum(1, keepdims=True))
        bound = gammaln(1.5 * candidates) - candidates * gammaln(1.5) + 0.5 * np.log(m).sum()
        prior = gammaln(alpha) - gammaln(alpha * m).sum() + ((alpha * m - 1) * log_w).sum(1)
        posterior = gammaln(gamma.sum(1)) - gammaln(gamma).sum(1) + ((gamma - 1) * log_w).sum(1)
        labels = (there[:, 0] * logsumexp(log_w[:, :, None] + ell, axis=1)).sum(1)
        bound += (prior - posterior + labels).sum()
        slope = 0.5 / m - num_clients * alpha * digamma(alpha * m) + alpha * log_w.sum(0)
        slope = slope * alpha / (alpha + LEAST * candidates) * share
        return bound, slope - share * slope.sum(), m, gamma

    found = minimize(
        lambda logits: tuple(-part for part in profile(logits)[:2]),
        np.zeros(candidates),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-8},
    )
    bound, _, m, gamma = profile(found.x)
    return torch.from_numpy(gamma / gamma.sum(1, keepdims=True)), torch.from_numpy(m), bound


def test_it_is_variational_em_written_out() -> None:
    """Clients who rely on different candidates, so that there is one best m and not a ridge of them."""
    log_p, mask = log_likelihoods(6, 3, 40)
    log_p[::2, 0] += 0.8
    log_p[1::2, 1] += 0.8
    log_p = torch.nn.functional.logsigmoid(log_p)
    weights, common, bound = by_hand(log_p, mask, 20.0)
    program = Stacking(3, 20.0)
    tight = replace(SEARCH, sweeps=100, tol=1e-7)
    found = tight.fit(program, *checked(log_p, mask), generator=generator(0, "test"))
    assert found.elbo == pytest.approx(bound, abs=1e-5)
    close(program.common, common, 1e-3)
    close(found.moments["w"].squeeze(1)[:-1], weights[:-1], 1e-3)  # the last client has no image
    quick = stack(log_p, mask)
    close(quick.weights, weights, 0.02)
    assert bound - 0.05 < quick.bound <= bound + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_never_falls(seed: int) -> None:
    log_p, mask = log_likelihoods(6, 4, 15, seed)
    found = SEARCH.fit(Stacking(4, 20.0), *checked(log_p, mask), generator=generator(0, "test"))
    bounds = torch.tensor(found.bounds, dtype=torch.float64)
    assert float(bounds.diff().min()) >= -1e-9 * abs(found.elbo)
    assert found.elbo > found.bounds[0]


def test_one_candidate_has_all() -> None:
    found = stack(normal(3, 1, 4), torch.ones(3, 4, dtype=torch.bool))
    close(found.weights, torch.ones(3, 1))
    close(found.common, torch.ones(1))


def test_who_is_always_best_has_nearly_all() -> None:
    log_p = normal(6, 3, 40).abs().neg() - 4
    log_p[:, 1] = -0.1
    found = stack(log_p, torch.ones(6, 40, dtype=torch.bool))
    assert float(found.weights[:, 1].min()) > 0.97


def test_a_client_that_differs_keeps_its_own() -> None:
    log_p = torch.full((8, 2, 40), -4.0)
    log_p[:7, 0] = log_p[7, 1] = -0.1
    found = stack(log_p, torch.ones(8, 40, dtype=torch.bool))
    assert float(found.common[0]) > 0.5
    assert float(found.weights[7, 1]) > 0.6
    assert float(found.weights[:7, 0].min()) > 0.9


def test_permuting_the_candidates_permutes_the_weights() -> None:
    log_p, mask = log_likelihoods(5, 4, 20)
    order = torch.tensor([2, 0, 3, 1])
    here, there = stack(log_p, mask), stack(log_p[:, order], mask)
    close(there.weights, here.weights[:, order], 1e-6)
    close(there.common, here.common[order], 1e-6)


def test_clients_without_images_take_what_is_common_and_change_nothing() -> None:
    log_p, mask = log_likelihoods(5, 3, 20)
    without = torch.cat([mask, torch.zeros(1, 20, dtype=torch.bool)])
    here, there = stack(log_p, mask), stack(torch.cat([log_p, normal(1, 3, 20)]), without)
    close(there.weights[:5], here.weights, 1e-9)
    close(there.weights[5], here.common, 1e-9)
    nobody = stack(log_p, torch.zeros_like(mask))
    close(nobody.weights, torch.full((5, 3), 1 / 3), 1e-6)
    close(stack(torch.zeros(2, 3, 0), torch.zeros(2, 0).bool()).weights, torch.full((2, 3), 1 / 3), 1e-6)


def test_masked_images_count_nothing() -> None:
    log_p, mask = log_likelihoods(4, 3, 10)
    one, other = (stack(torch.where(mask[:, None], log_p, value), mask) for value in (3.0, torch.nan))
    assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(one, other, strict=True))


def test_a_single_client_and_a_repetition() -> None:
    log_p, mask = log_likelihoods(1, 3, 30)
    found: Stacked = stack(log_p, mask)
    close(found.weights.sum(1), torch.ones(1))
    with torch.no_grad():
        again = stack(log_p.float(), mask)
    close(again.weights, found.weights, 1e-4)
    assert stack(log_p, mask).bound == found.bound


def test_many_clients_leave_a_useless_candidate_a_number() -> None:
    """Its concentration is so low that exp(E[log w]) nearly underflows."""
    log_p = torch.full((200, 2, 30), -0.1)
    log_p[:, 1] = -30.0
    found = stack(log_p, torch.ones(200, 30, dtype=torch.bool))
    assert bool(found.weights.isfinite().all())
    assert 0 < float(found.common[1]) < 0.01


@pytest.mark.parametrize(
    ("log_p", "mask", "alpha", "message"),
    [
        (torch.zeros(2, 3), torch.ones(2, 3), 20.0, r"expected \(clients, candidates, images\)"),
        (torch.zeros(2, 3, 4), torch.ones(2, 3), 20.0, r"mask \(2, 3\)"),
        (torch.zeros(2, 0, 4), torch.ones(2, 4), 20.0, "a candidate"),
        (torch.full((2, 3, 4), -torch.inf), torch.ones(2, 4), 20.0, "not finite"),
        (torch.zeros(2, 3, 4), torch.ones(2, 4), 0.0, "alpha is 0.0"),
    ],
)
def test_what_cannot_be_used_is_refused(log_p: Tensor, mask: Tensor, alpha: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        stack(log_p, mask.bool(), alpha)
