"""MomentELBO against brute-force enumeration, finite differences, sampling, and as a Pyro bound."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from torch import Tensor

from scool_ppl import (
    InputError,
    MomentELBO,
)
from scool_ppl.infer.enumeration import enumerated_bound
from scool_ppl.infer.estep.svi import guide_of
from scool_ppl.infer.priors.base import Joint
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import (
    Positions,
    known_blocks,
    scattered,
    some_masked,
)


@pytest.mark.parametrize("mask", [None, some_masked(3)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_equals_enumeration(mask: Tensor | None, seed: int) -> None:
    joint, evidence = known_blocks(mask=mask)
    guide = scattered(joint, evidence, seed)
    exact = -MomentELBO().loss(joint, guide, evidence)
    assert abs(exact - enumerated_bound(joint, guide, evidence)) < 1e-10


def test_the_gradient_equals_finite_differences() -> None:
    joint, evidence = known_blocks(mask=some_masked(3))
    guide = scattered(joint, evidence)
    elbo = MomentELBO()
    parameters = [*guide.parameters(), *joint.prior.parameters()]
    gradients = torch.autograd.grad(elbo.bound(joint, guide, evidence), parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        for place in range(parameter.numel()):
            step = torch.zeros_like(parameter).flatten()
            step[place] = 1e-5
            sides = []
            for sign in (1, -1):
                with torch.no_grad():
                    parameter += sign * step.view_as(parameter)
                    sides.append(float(elbo.bound(joint, guide, evidence)))
                    parameter -= sign * step.view_as(parameter)
            assert (sides[0] - sides[1]) / 2e-5 == pytest.approx(float(gradient.flatten()[place]), abs=1e-6)


def test_masked_pairs_have_no_influence() -> None:
    joint, evidence = known_blocks(mask=some_masked(3))
    guide = scattered(joint, evidence)
    before = MomentELBO().bound(joint, guide, evidence)
    wild = torch.where(evidence.peers.mask, joint.log_lik, torch.tensor(torch.nan).double())
    with torch.no_grad():
        guide.Y_logits[~evidence.peers.mask] += 5  # a view of the parameter: constrained as real
        raw = dict(guide.named_parameters())["Y_logits_unconstrained"]
        raw[~evidence.peers.mask] += 5
    after = MomentELBO().bound(Joint(joint.prior, wild), guide, evidence)
    assert torch.equal(before, after)
    gradient = torch.autograd.grad(after, raw)[0]
    assert not gradient[~evidence.peers.mask].any()


def test_loss_is_minus_the_bound_and_leaves_gradients() -> None:
    joint, evidence = known_blocks()
    guide = scattered(joint, evidence)
    elbo = MomentELBO()
    bound = float(elbo.bound(joint, guide, evidence).detach())
    assert elbo.loss(joint, guide, evidence) == pytest.approx(-bound)
    assert elbo.loss_and_grads(joint, guide, evidence) == pytest.approx(-bound)
    assert all(parameter.grad is not None for parameter in guide.parameters())
    assert float(elbo(joint.prior, guide)(evidence).detach()) != 0  # Pyro's ELBOModule


def test_a_site_missing_in_the_guide_is_named() -> None:
    joint, evidence = known_blocks()

    def guide(evidence: Evidence) -> None:
        with joint.prior.opened(evidence), joint.prior.clients:
            pyro.sample("pi", dist.Dirichlet(torch.ones(2).double()))

    with pytest.raises(InputError, match="site 'z' of the model is missing in the guide"):
        MomentELBO().loss(joint, guide, evidence)


def test_sampled_and_moment_bound_agree_in_the_mean() -> None:
    joint, evidence = known_blocks()
    guide = scattered(joint, evidence)
    exact = -MomentELBO().loss(joint, guide, evidence)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        draws = torch.tensor([-Trace_ELBO().loss(joint, guide, evidence) for _ in range(500)])
    assert abs(exact - draws.mean()) < 4 * draws.std() / 500**0.5


def test_a_continuous_site_mixes_with_moments() -> None:
    """E over x by many particles equals the bound at x's draws; exact in Y given x."""
    prior, log_lik = Positions(3).double(), random_log_lik(3)
    joint, evidence = Joint(prior, log_lik), evidence_of(log_lik)
    guide = scattered(joint, evidence)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        mixed = float(MomentELBO(num_particles=400).bound(joint, guide, evidence))
        sampled = torch.tensor([-Trace_ELBO().loss(joint, guide, evidence) for _ in range(800)])
    assert abs(mixed - sampled.mean()) < 5 * sampled.std() / 400**0.5


@pytest.mark.parametrize("elbo", [Trace_ELBO(num_particles=2), MomentELBO(num_particles=2)])
def test_svi_with_auto_normal_moves_a_continuous_latent(elbo: Trace_ELBO | MomentELBO) -> None:
    """Two clients that cooperate and one that does not: x of the two comes together."""
    edges = torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 0]]).double()
    evidence = evidence_of(12 * (2 * edges - 1))
    prior = Positions(3)
    given = poutine.condition(prior, data={"Y": edges})
    before = dict(pyro.get_param_store())
    with torch.random.fork_rng(), pyro.settings.context(module_local_params=True):
        torch.manual_seed(0)
        guide = AutoNormal(given)
        svi = SVI(given, guide, pyro.optim.Adam({"lr": 0.05}), elbo)
        first = sum(svi.step(evidence) for _ in range(20)) / 20
        for _ in range(130):
            svi.step(evidence)
        last = sum(svi.step(evidence) for _ in range(20)) / 20
        x = guide.median(evidence)["x"]
    assert last < first
    assert (x[0] - x[1]).norm() < min((x[0] - x[2]).norm(), (x[1] - x[2]).norm())
    assert dict(pyro.get_param_store()) == before


def test_svi_with_trace_elbo_runs_on_a_discrete_prior() -> None:
    joint, evidence = known_blocks()
    guide = guide_of(joint.prior, joint)
    with torch.random.fork_rng(), pyro.settings.context(module_local_params=True):
        torch.manual_seed(0)
        svi = SVI(joint, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO(num_particles=10))
        start = MomentELBO().loss(joint, guide, evidence)
        for _ in range(60):
            svi.step(evidence)
        end = MomentELBO().loss(joint, guide, evidence)
    assert end < start
