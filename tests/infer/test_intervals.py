"""Credible intervals of weights: against log odds written out, and against the range of draws of a normal."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from scool_ppl import GraphPrior, InputError, OneHot
from scool_ppl.infer.intervals import Intervals, intervals
from scool_ppl.infer.priors.dirac import Dirac
from scool_ppl.infer.priors.sbm import SBM
from scool_ppl.look.evidence import Evidence
from tests.helpers.small import close, uniform


class Leaning(GraphPrior):
    """x_i ~ Normal(0, 1), Y_ij ~ Bernoulli(logits=x_i)."""

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            x = pyro.sample("x", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=self.receiver(x)))


def found(prior: GraphPrior, q: dict[str, Tensor], weights: Tensor, draws: int = 39, seed: int = 0) -> Intervals:
    shown = Evidence.given(loss=torch.zeros(len(weights), len(weights)))
    result = intervals(prior.double(), q, weights, shown, torch.Generator().manual_seed(seed), draws)
    assert result is not None
    return result


def test_blocks_that_nobody_is_sure_of_reach_from_the_lowest_to_the_highest_log_odds() -> None:
    """z is uniform over two blocks, so draws meet all of B; how far a pair reaches is known, wherever w is."""
    prior, weights = SBM(5, num_blocks=2, inside=0.8, outside=0.3), uniform(5, 5)
    flat = {"z_logits": torch.zeros(5, 2).double(), "pi_concentration": torch.ones(5, 2).double()}
    low, high = found(prior, flat, weights, draws=60)
    off = ~torch.eye(5, dtype=torch.bool)
    expected = torch.tensor(0.8).double().logit() - torch.tensor(0.3).double().logit()
    close((high.logit() - low.logit())[off], expected.expand(20), atol=1e-6)
    assert bool((low < weights)[off].all())
    assert bool((weights < high)[off].all())


def test_blocks_that_are_sure_leave_no_doubt() -> None:
    sure = {"z_logits": 50 * torch.eye(4).double(), "pi_concentration": torch.ones(4, 4).double()}
    weights = uniform(4, 4)
    low, high = found(SBM(4, num_blocks=4), sure, weights)
    close(low, weights)
    close(high, weights)


def test_places_that_are_not_sure_reach_as_far_as_draws_of_a_normal() -> None:
    """logit p_ij moves with x_i ~ Normal(m_i, s_i): the range of 39 draws, as numpy has it, in the mean over clients."""
    clients, spread = 300, torch.linspace(0.1, 0.5, 300).double()
    q = {"x_loc": torch.linspace(-1, 1, clients).double(), "x_scale": spread}
    low, high = found(Leaning(clients), q, torch.full((clients, clients), 0.6, dtype=torch.float64))
    reached = (high.logit() - low.logit())[:-1, -1] / spread[:-1]
    expected = np.ptp(np.random.default_rng(0).normal(size=(20_000, 39)), axis=1).mean()
    assert float(reached.mean()) == pytest.approx(expected, rel=0.03)


def test_of_two_choices_a_row_is_an_edge() -> None:
    """A softmax over two candidates is a sigmoid of their difference."""

    class Choosing(GraphPrior):
        includes_self, kind = True, "rows"

        def model(self, evidence: Evidence) -> Tensor:
            with self.clients:
                x = pyro.sample("x", dist.Normal(torch.zeros(2, dtype=torch.float64), 1.0))
            with self.clients:
                return pyro.sample("Y", OneHot(logits=torch.stack([x, torch.zeros_like(x)], 1)))

    q = {"x_loc": torch.zeros(2).double(), "x_scale": torch.full((2,), 0.3).double()}
    weights = torch.tensor([[0.3, 0.7], [0.9, 0.1]]).double()
    shown = Evidence.given(loss=torch.zeros(2, 2), includes_self=True)
    result = intervals(Choosing(2), q, weights, shown, torch.Generator().manual_seed(1))
    assert result is not None
    close(result.low[:, 0], 1 - result.high[:, 1])
    close(result.high[:, 0], 1 - result.low[:, 1])
    reached = (result.high.logit() - result.low.logit())[:, 0] / 0.3
    assert bool(((reached > 2.5) & (reached < 7)).all())


def test_what_q_does_not_know_is_not_invented() -> None:
    weights, shown, random = uniform(3, 3), Evidence.given(loss=torch.zeros(3, 3)), torch.Generator()
    assert intervals(Dirac(weights), {}, weights, shown, random) is None

    class Plain(GraphPrior):
        def model(self, evidence: Evidence) -> Tensor:
            with self.edges:
                return pyro.sample("Y", dist.Bernoulli(torch.tensor(0.5)))

    assert intervals(Plain(3), {}, weights, shown, random) is None

    class Reading(Leaning):
        needs = ("loss",)

    assert intervals(Reading(3), {}, weights, shown, random) is None


def test_a_single_draw_has_no_ends() -> None:
    with pytest.raises(InputError, match="draws is 1"):
        found(Leaning(3), {}, uniform(3, 3), draws=1)


def test_the_users_random_numbers_are_left_alone_and_the_seed_decides() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    q = {"x_loc": torch.zeros(4).double(), "x_scale": torch.ones(4).double()}
    one, same, other = (found(Leaning(4), q, uniform(4, 4), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.low, same.low)
    assert not torch.equal(one.low, other.low)
