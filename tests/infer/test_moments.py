"""Moments against expectations over every value, and the log joint at values that are given."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor
from torch.nn.functional import one_hot

from scool_ppl import BlockBernoulli, InputError, OneHot
from scool_ppl.infer.moments import expected_log, factor, latent_sites, log_joint, moment, site_value
from tests.helpers.small import close, normal, uniform


def test_the_density_at_the_moment_is_the_expected_density_of_one_hot_vectors() -> None:
    q, p = OneHot(logits=normal(4, 3)), OneHot(uniform(4, 3, seed=1))
    values = [one_hot(torch.tensor(group), 3).double().expand(4, 3) for group in range(3)]
    expected = sum(q.log_prob(value).exp() * p.log_prob(value) for value in values)
    found = moment(q)
    assert found is not None
    close(p.log_prob(found), torch.as_tensor(expected))


def test_the_density_at_the_moment_is_the_expected_density_of_edges() -> None:
    blocks = BlockBernoulli(uniform(5, 2).softmax(-1), uniform(5, 2, seed=1).softmax(-1), 0.1 + 0.8 * uniform(2, 2))
    for q in (dist.Bernoulli(uniform(5, seed=2)), blocks):
        values = [torch.full((5,), float(edge), dtype=torch.float64) for edge in (0, 1)]
        expected = sum(q.log_prob(value).exp() * blocks.log_prob(value) for value in values)
        found = moment(q)
        assert found is not None
        if q is not blocks:  # between soft memberships the two log-densities are no longer those of probabilities
            close(blocks.log_prob(found), torch.as_tensor(expected))
        close(found, q.mean)


def test_of_a_dirichlet_it_is_the_geometric_mean() -> None:
    """E[log x] of a Beta(a, b) is an integral over (0, 1), here by the midpoint rule."""
    a, b = 2.5, 1.5
    grid = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    density = dist.Beta(a, b).log_prob(grid).exp() / 200_000
    expected = torch.stack([(density * grid.log()).sum(), (density * (-grid).log1p()).sum()])
    concentration = torch.tensor([a, b], dtype=torch.float64)
    close(expected_log(concentration), expected, 1e-5)
    found = moment(dist.Dirichlet(concentration))
    assert found is not None
    close(found.log(), expected, 1e-5)
    assert float(found.sum()) < 1, "it is not renormalised"


def test_what_is_wrapped_has_the_moment_of_what_it_wraps_and_others_have_none() -> None:
    edges = dist.Bernoulli(uniform(3, 4))
    for wrapped in (edges.to_event(1), edges.mask(torch.tensor(True))):
        found = moment(wrapped)
        assert found is not None
        close(found, edges.probs)
    assert moment(dist.Normal(0.0, 1.0)) is None
    assert moment(dist.Poisson(torch.tensor(2.0))) is None


@pytest.mark.parametrize(
    ("kind", "parameter", "mean"),
    [
        ("bernoulli", torch.tensor([0.0, 2.0]).double(), torch.tensor([0.5, 0.880797]).double()),
        ("one-hot", torch.tensor([0.0, 0.0, 1.0]).double(), torch.tensor([0.211942, 0.211942, 0.576117]).double()),
        ("dirichlet", torch.tensor([1.0, 3.0]).double(), torch.tensor([0.25, 0.75]).double()),
    ],
)
def test_a_factor_is_made_from_its_kind_and_its_parameter(kind: str, parameter: Tensor, mean: Tensor) -> None:
    close(factor(kind, parameter).mean, mean, 1e-6)


def program() -> Tensor:
    """A biased coin whose bias is drawn, one that is observed, and one that is only a device of the program."""
    bias = pyro.sample("bias", dist.Beta(2.0, 2.0))
    pyro.sample("seen", dist.Bernoulli(bias), obs=torch.tensor(1.0))
    pyro.sample("device", dist.Normal(0.0, 1.0), infer={"is_auxiliary": True})
    with pyro.plate("coins", 2):
        return pyro.sample("coins drawn", dist.Bernoulli(bias))


def test_the_latent_sites_are_the_unobserved_ones_in_their_order() -> None:
    with torch.random.fork_rng():
        trace = poutine.trace(program).get_trace()
    found = dict(latent_sites(trace))
    assert list(found) == ["bias", "coins drawn"]
    assert torch.equal(site_value(found["bias"]), trace.nodes["bias"]["value"]), "a sample where there is no moment"
    close(site_value(found["coins drawn"]), found["coins drawn"]["fn"].mean)


def test_the_score_is_the_log_joint_at_the_values_soft_ones_too() -> None:
    bias, coins = torch.tensor(0.25), torch.tensor([0.3, 1.0])
    given = {"bias": bias, "coins drawn": coins, "device": torch.tensor(0.0)}
    found, trace = log_joint(program, given)
    heads, tails = torch.log(torch.tensor(0.25)), torch.log(torch.tensor(0.75))
    prior = torch.log(6 * bias * (1 - bias))  # Beta(2, 2)
    device = -0.5 * torch.log(torch.tensor(2 * torch.pi))
    close(found, prior + heads + device + 1.3 * heads + 0.7 * tails, 1e-5)
    assert torch.equal(trace.nodes["coins drawn"]["value"], coins)


def test_a_site_without_a_value_or_with_an_argmax_is_refused() -> None:
    with torch.random.fork_rng(), pytest.raises(InputError, match="site 'coins drawn' of the model is missing"):
        log_joint(program, {"bias": torch.tensor(0.5), "device": torch.tensor(0.0)})

    def choosing() -> None:
        pyro.sample("choice", dist.OneHotCategorical(torch.ones(2) / 2))

    with pytest.raises(InputError, match=r"'choice' is OneHotCategorical.*use scool_ppl\.OneHot"):
        log_joint(choosing, {"choice": torch.ones(2) / 2})
