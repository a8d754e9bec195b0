"""The account against closed forms, Renyi divergences by hand, and the accountant step by step."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr, logsumexp

from scool_ppl.errors import InputError
from scool_ppl.train.contract import Plan
from scool_ppl.train.privacy.account import STEPS, Account
from scool_ppl.train.privacy.promise import Privacy
from tests.helpers.unequal import SIZES, clients, federation

DELTA = 1e-3
SIZE = torch.tensor([100, 50, 8])


@pytest.fixture
def accounted() -> Any:
    return pytest.importorskip("opacus.accountants", reason="opacus is not installed")


def account(noise: float = 1.0, evidence_noise: float | None = 2.0, **options: Any) -> Account:
    clip = None if evidence_noise is None else 4.0
    privacy = Privacy(noise, 1.0, DELTA, evidence_noise=evidence_noise, evidence_clip=clip, **options)
    return Account.of(privacy, SIZE, 10)


def spent(steps: int, releases: int) -> torch.Tensor:
    return torch.tensor([[steps, releases]] * len(SIZE)).double()


def converted(renyi: Callable[[float], float], orders: list[float]) -> float:
    """The least epsilon over orders, by Balle et al. (2020), Theorem 21."""

    def of(order: float) -> float:
        return renyi(order) - (math.log(DELTA) + math.log(order)) / (order - 1) + math.log((order - 1) / order)

    return min(map(of, orders))


def gaussian(order: float, sigma: float) -> float:
    return order / (2 * sigma**2)


def sampled(order: int, sigma: float, rate: float) -> float:
    """Mironov et al. (2019), Section 3.3: the binomial sum for a whole order."""
    terms = [
        gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        + (k * math.log(rate) if k else 0) + (order - k) * math.log1p(-rate)
        + k * (k - 1) / (2 * sigma**2)
        for k in range(order + 1)
    ]  # fmt: skip
    return float(logsumexp(terms)) / (order - 1)


def exact(sigma: float) -> float:
    """The epsilon of one Gaussian mechanism: delta(epsilon) in closed form (Balle and Wang, 2018, Theorem 8)."""

    def excess(epsilon: float) -> float:
        first = math.exp(log_ndtr(1 / (2 * sigma) - epsilon * sigma))
        return first - math.exp(epsilon + log_ndtr(-1 / (2 * sigma) - epsilon * sigma)) - DELTA

    return float(brentq(excess, 1e-6, 200))


@pytest.mark.parametrize(("sigma", "count"), [(2.0, 1), (5.0, 20), (20.0, 3)])
def test_releases_alone_are_one_gaussian_mechanism(sigma: float, count: int, accounted: Any) -> None:
    """N releases of noise sigma are one of noise sigma / sqrt(N); Renyi's bound is above its epsilon, and not far."""
    found = account(evidence_noise=sigma).epsilon(spent(0, count))
    assert len(found.unique()) == 1, "whatever the rate of batches"
    least = exact(sigma / math.sqrt(count))
    assert least < float(found[0]) < 1.25 * least
    orders = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))
    by_hand = converted(lambda order: gaussian(order, sigma / math.sqrt(count)), [float(o) for o in orders])
    assert float(found[0]) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize(("noise", "evidence", "steps", "releases"), [(4.0, 30.0, 6, 2), (6.0, 12.0, 10, 1)])
def test_steps_and_releases_are_one_epsilon(
    noise: float, evidence: float, steps: int, releases: int, accounted: Any
) -> None:
    """Divergences add up at each order; noise is such that the best order is a whole one, where the sum is exact."""
    found = account(noise, evidence).epsilon(spent(steps, releases))
    for epsilon, rate in zip(found.tolist()[:2], (0.1, 0.2), strict=True):

        def renyi(order: float, rate: float = rate) -> float:
            return steps * sampled(int(order), noise, rate) + releases * gaussian(order, evidence)

        assert epsilon == pytest.approx(converted(renyi, [float(order) for order in range(12, 64)]), rel=1e-9)
    all_there = 1 / math.sqrt(steps / noise**2 + releases / evidence**2)
    assert found[2] > exact(all_there), "who has no more than a batch is in all batches"
    alone = account(noise, evidence).epsilon(spent(steps, 0))
    assert (found > alone).all()


def test_training_alone_is_the_accountants_own_step_by_step(accounted: Any) -> None:
    network = clients(federation(), privacy=Privacy(1.1, 1.0, delta=DELTA))
    trained = network.train(network.init(0), None, Plan(epochs=2))
    trained = network.train(trained.params, trained.optimizer_state, Plan(epochs=1, round=1))
    made = trained.optimizer_state[STEPS]
    assert network.account is not None
    epsilon = network.account.epsilon(torch.stack([made, torch.zeros_like(made)], 1))
    for size, found in zip(SIZES, epsilon.tolist(), strict=True):
        accountant = accounted.RDPAccountant()
        for _ in range(3 * math.ceil(size / 4)):
            accountant.step(noise_multiplier=1.1, sample_rate=min(1.0, 4 / size))
        assert found == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-9)


def test_what_is_revealed_without_noise_has_no_bound_and_nothing_costs_nothing() -> None:
    pytest.importorskip("opacus", reason="opacus is not installed")
    for promised in (account(0.0), account(poisson=False)):
        assert promised.epsilon(spent(1, 0)).tolist() == [math.inf] * 3
    assert account(evidence_noise=0.0).epsilon(spent(0, 1)).tolist() == [math.inf] * 3
    assert account().epsilon(spent(0, 0)).tolist() == [0.0] * 3


def test_without_opacus_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    with pytest.raises(InputError, match=r"pip install 'scool_ppl\[privacy\]'"):
        clients(federation(), privacy=Privacy(1.0, 1.0))
    with pytest.raises(InputError, match=r"pip install 'scool_ppl\[privacy\]'"):
        account(0.0, 1.0)
    clipping = clients(federation(), privacy=Privacy(0.0, 1.0)).account
    assert clipping is not None, "clipping alone needs no accountant"
