"""MomentELBO against brute-force enumeration, finite differences and closed forms; AutoMeanField as a Pyro guide."""

from __future__ import annotations

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from torch import Tensor

from scool_ppl import AutoMeanField, GraphPrior, InputError, MomentELBO
from scool_ppl.infer.enumeration import enumerated_bound
from scool_ppl.infer.estep.svi import guide_of
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.priors.sbm import SBM
from scool_ppl.look.evidence import Evidence
from tests.conftest import evidence_of, random_log_lik


class Positions(GraphPrior):
    """A prior with a continuous latent: logit P(Y_ij) = 1 - |x_i - x_j|^2."""

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            x = pyro.sample("x", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        away = (self.receiver(x) - self.sender(x)).square().sum(-1)
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=1 - away))


def scattered(joint: Joint, evidence: Evidence, seed: int = 0) -> AutoMeanField:
    guide = AutoMeanField(joint)
    guide.setup(evidence)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in guide.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random, dtype=parameter.dtype))
    return guide


def case(num_clients: int = 3, blocks: int = 2, mask: Tensor | None = None) -> tuple[Joint, Evidence]:
    log_lik = random_log_lik(num_clients)
    prior = SBM(num_clients, blocks, alpha=0.7).double()
    prior.B = torch.tensor([[0.85, 0.3], [0.2, 0.6]], dtype=torch.float64)[:blocks, :blocks]
    return Joint(prior, log_lik), evidence_of(log_lik, mask)


def masked() -> Tensor:
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[0, 2] = mask[2, 1] = False
    return mask


@pytest.mark.parametrize("mask", [None, masked()])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_equals_enumeration(mask: Tensor | None, seed: int) -> None:
    joint, evidence = case(mask=mask)
    guide = scattered(joint, evidence, seed)
    exact = -MomentELBO().loss(joint, guide, evidence)
    assert abs(exact - enumerated_bound(joint, guide, evidence)) < 1e-10


def test_enumeration_sees_every_configuration() -> None:
    """Independent of Pyro: the bound of one free edge pair, written out by hand."""
    joint, evidence = case(2, 1)
    guide = scattered(joint, evidence)
    w, ell, b = guide.distribution("Y").mean.detach(), joint.log_lik, 0.85
    off = ~torch.eye(2, dtype=torch.bool)
    odds = ell + math.log(b) - math.log(1 - b)
    entropy = torch.special.entr(w) + torch.special.entr(1 - w)
    by_hand = float((w * odds + entropy)[off].sum()) + 2 * math.log(1 - b)
    assert enumerated_bound(joint, guide, evidence) == pytest.approx(by_hand, abs=1e-10)


def test_the_gradient_equals_finite_differences() -> None:
    joint, evidence = case(mask=masked())
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
    joint, evidence = case(mask=masked())
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
    joint, evidence = case()
    guide = scattered(joint, evidence)
    elbo = MomentELBO()
    bound = float(elbo.bound(joint, guide, evidence).detach())
    assert elbo.loss(joint, guide, evidence) == pytest.approx(-bound)
    assert elbo.loss_and_grads(joint, guide, evidence) == pytest.approx(-bound)
    assert all(parameter.grad is not None for parameter in guide.parameters())
    assert float(elbo(joint.prior, guide)(evidence).detach()) != 0  # Pyro's ELBOModule


def test_a_site_missing_in_the_guide_is_named() -> None:
    joint, evidence = case()

    def guide(evidence: Evidence) -> None:
        with joint.prior.bound(evidence), joint.prior.clients:
            pyro.sample("pi", dist.Dirichlet(torch.ones(2).double()))

    with pytest.raises(InputError, match="site 'z' of the model is missing in the guide"):
        MomentELBO().loss(joint, guide, evidence)


def test_a_distribution_that_is_not_linear_is_refused() -> None:
    class Argmax(GraphPrior):
        def model(self, evidence: Evidence) -> Tensor:
            with self.clients:
                z = pyro.sample("z", dist.OneHotCategorical(torch.ones(2) / 2))
            with self.edges:
                return pyro.sample("Y", dist.Bernoulli((self.receiver(z) * self.sender(z)).sum(-1) * 0.8 + 0.1))

    evidence = evidence_of(random_log_lik(3))
    with pytest.raises(InputError, match=r"use scool_ppl\.OneHot"):
        AutoMeanField(Argmax(3))(evidence)


def test_sampled_and_moment_bound_agree_in_the_mean() -> None:
    joint, evidence = case()
    guide = scattered(joint, evidence)
    exact = -MomentELBO().loss(joint, guide, evidence)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        draws = torch.tensor([-Trace_ELBO().loss(joint, guide, evidence) for _ in range(1500)])
    assert abs(exact - draws.mean()) < 4 * draws.std() / 1500**0.5


def test_a_continuous_site_mixes_with_moments() -> None:
    """E over x by many particles equals the bound at x's draws; exact in Y given x."""
    prior, log_lik = Positions(3).double(), random_log_lik(3)
    joint, evidence = Joint(prior, log_lik), evidence_of(log_lik)
    guide = scattered(joint, evidence)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        mixed = float(MomentELBO(num_particles=1500).bound(joint, guide, evidence))
        sampled = torch.tensor([-Trace_ELBO().loss(joint, guide, evidence) for _ in range(3000)])
    assert abs(mixed - sampled.mean()) < 5 * sampled.std() / 1500**0.5


def test_the_guide_is_a_pyro_guide() -> None:
    joint, evidence = case()
    guide = scattered(joint, evidence)
    trace = poutine.trace(guide).get_trace(evidence)
    assert {"pi", "z", "Y"} <= set(trace.nodes)
    assert torch.equal(trace.nodes["Y"]["mask"], evidence.peers.mask)
    drawing = pyro.render_model(guide, model_args=(evidence,))
    assert all(f"{site} " in drawing.source or f"\t{site}" in drawing.source for site in ("pi", "z", "Y"))


def test_everything_of_pyro_works_on_a_prior() -> None:
    evidence = evidence_of(random_log_lik(4))
    prior = SBM(4, 2)
    assert "Y" in pyro.render_model(prior, model_args=(evidence,)).source
    trace = poutine.trace(prior).get_trace(evidence)
    trace.compute_log_prob()
    assert torch.equal(trace.nodes["_RETURN"]["value"], trace.nodes["Y"]["value"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = Predictive(prior, num_samples=200)(evidence)
    assert draws["Y"].shape == (200, 4, 4)
    assert set(draws["Y"].unique().tolist()) == {0.0, 1.0}
    z = draws["z"].reshape(200, 4, 2)
    same = (z[:, 0] * z[:, 1]).sum(-1) > 0.5
    assert draws["Y"][same, 0, 1].mean() > 0.8 > 0.2 > draws["Y"][~same, 0, 1].mean()


@pytest.mark.parametrize("elbo", [Trace_ELBO(num_particles=4), MomentELBO(num_particles=4)])
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
        for _ in range(250):
            svi.step(evidence)
        last = sum(svi.step(evidence) for _ in range(20)) / 20
        x = guide.median(evidence)["x"]
    assert last < first
    assert (x[0] - x[1]).norm() < min((x[0] - x[2]).norm(), (x[1] - x[2]).norm())
    assert dict(pyro.get_param_store()) == before


def test_svi_with_trace_elbo_runs_on_a_discrete_prior() -> None:
    joint, evidence = case()
    guide = guide_of(joint.prior, joint)
    with torch.random.fork_rng(), pyro.settings.context(module_local_params=True):
        torch.manual_seed(0)
        svi = SVI(joint, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO(num_particles=10))
        start = MomentELBO().loss(joint, guide, evidence)
        for _ in range(60):
            svi.step(evidence)
        end = MomentELBO().loss(joint, guide, evidence)
    assert end < start


def test_values_and_load_are_inverse() -> None:
    joint, evidence = case()
    guide = scattered(joint, evidence)
    other = AutoMeanField(joint)
    other.setup(evidence)
    other.load(guide.values())
    assert all(torch.allclose(value, other.values()[name], atol=1e-12) for name, value in guide.values().items())
    assert not pyro.get_param_store().keys()
