"""MomentELBO against brute-force enumeration, finite differences, sampling, and as a Pyro bound."""

from __future__ import annotations

import itertools
import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from torch import Tensor

from scool_ppl import (
    AutoMeanField,
    BlockBernoulli,
    GraphPrior,
    InputError,
    MomentELBO,
    NaturalGradient,
    OneHot,
)
from scool_ppl.infer import Program
from scool_ppl.infer.enumeration import enumerated_bound
from scool_ppl.infer.estep.svi import guide_of
from scool_ppl.infer.moments import AnyProgram
from scool_ppl.infer.priors.base import Joint
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import (
    Positions,
    known_blocks,
    rng,
    scattered,
    some_masked,
)
from tests.helpers.small import close, normal


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


class Scaled(GraphPrior):
    """Memberships count 2.5 times, edges 0.4 times, pairs with the first client half as often again."""

    def model(self, evidence: Evidence) -> Tensor:
        B = torch.tensor([[0.85, 0.3], [0.2, 0.6]], dtype=torch.float64)
        with self.clients, poutine.scale(scale=2.5):
            z = pyro.sample("z", OneHot(torch.tensor([0.3, 0.7], dtype=torch.float64)))
        with poutine.scale(scale=edge_scale()), self.edges:
            return pyro.sample("Y", BlockBernoulli(self.receiver(z), self.sender(z), B))


def edge_scale() -> Tensor:
    scale = torch.full((3, 3), 0.4, dtype=torch.float64)
    scale[0] = 0.6
    return scale


def written_out(log_lik: Tensor, z: Tensor, y: Tensor) -> float:
    """sum_x q(x) [log p(x, D) - sum_sites s log q(x)] over 8 memberships and 64 graphs, without Pyro."""
    B, pi = [[0.85, 0.3], [0.2, 0.6]], [0.3, 0.7]
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    total = 0.0
    for blocks in itertools.product([0, 1], repeat=3):
        for edges in itertools.product([0, 1], repeat=len(pairs)):
            log_q, value = 0.0, 0.0
            for i, g in enumerate(blocks):
                each = math.log(float(z[i, g]))
                log_q, value = log_q + each, value + 2.5 * (math.log(pi[g]) - each)
            for (i, j), edge in zip(pairs, edges, strict=True):
                b, w, scale = B[blocks[i]][blocks[j]], float(y[i, j]), 0.6 if i == 0 else 0.4
                each = math.log(w if edge else 1 - w)
                log_q += each
                value += scale * (math.log(b if edge else 1 - b) - each) + edge * float(log_lik[i, j])
            total += math.exp(log_q) * value
    return total


def test_a_scaled_site_counts_as_often_in_q() -> None:
    log_lik = random_log_lik(3)
    joint, evidence = Joint(Scaled(3).double(), log_lik), evidence_of(log_lik)
    guide = scattered(joint, evidence)
    trace = poutine.trace(guide).get_trace(evidence)
    assert float(trace.nodes["z"]["scale"]) == 2.5
    close(trace.nodes["Y"]["scale"], edge_scale())
    expected = written_out(log_lik, guide.distribution("z").mean.detach(), guide.distribution("Y").mean.detach())
    assert -MomentELBO().loss(joint, guide, evidence) == pytest.approx(expected, abs=1e-10)
    assert enumerated_bound(joint, guide, evidence) == pytest.approx(expected, abs=1e-10)


def test_scales_are_in_every_e_step() -> None:
    """Coordinate ascent ends where the bound, as MomentELBO has it, does not rise any more."""
    log_lik = random_log_lik(3)
    joint, evidence = Joint(Scaled(3).double(), log_lik), evidence_of(log_lik)
    found = NaturalGradient(sweeps=200, tol=1e-12)(joint, evidence, {}, rng())
    guide = scattered(joint, evidence)
    guide.load(found.q)
    bound = MomentELBO().bound(joint, guide, evidence)
    assert found.elbo == pytest.approx(float(bound.detach()), abs=1e-9)
    slopes = torch.autograd.grad(bound, [*guide.parameters()])
    assert all(float(slope.abs().max()) < 1e-6 for slope in slopes)


def subsampling(size: int, drawn: int) -> AnyProgram:
    """c_n ~ Categorical(pi), pi ~ Dirichlet(1): mixtures of what is observed, some of which is drawn in each run."""
    points = torch.linspace(-2, 2, size).double()

    def model() -> None:
        pi = pyro.sample("pi", dist.Dirichlet(torch.ones(2).double()))
        with pyro.plate("points", size, subsample_size=drawn) as members:
            c = pyro.sample("c", OneHot(pi))
            pyro.factor("x", (c * torch.stack([points[members], -points[members]], -1)).sum(-1))

    return model


def test_a_subsampled_plate_gives_the_bound_in_the_mean() -> None:
    """Each run scales up those it draws: averaged over all draws of 2 of 4 it is the bound of all 4, exactly."""
    whole, part = subsampling(4, 4), subsampling(4, 2)
    guide = AutoMeanField(part)
    guide.setup()
    guide.load({"c_logits": normal(4, 2), "pi_concentration": torch.tensor([1.5, 0.7]).double()})
    assert guide.subsampled("c") == ["points"]
    everybody = AutoMeanField(whole)
    everybody.setup()
    everybody.load(guide.values())
    bound = -MomentELBO().loss(whole, everybody)
    drawn = []
    for pair in itertools.combinations(range(4), 2):
        members = {"points": torch.tensor(pair)}
        drawn.append(-MomentELBO().loss(part, poutine.condition(guide, data=members)))
    assert sum(drawn) / len(drawn) == pytest.approx(bound, abs=1e-10)
    assert len({round(value, 6) for value in drawn}) > 1


def test_svi_learns_the_members_of_a_subsampled_plate() -> None:
    program = subsampling(6, 3)
    guide = AutoMeanField(program)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        svi = SVI(program, guide, pyro.optim.Adam({"lr": 0.1}), MomentELBO())
        for _ in range(300):
            svi.step()
    means = guide.distribution("c").mean.detach()
    expected_log = guide.distribution("pi").concentration.detach().digamma()
    points = torch.linspace(-2, 2, 6).double()
    close(means, (torch.stack([points, -points], -1) + expected_log).softmax(-1), 0.05)


def test_coordinate_ascent_refuses_a_subsampled_plate() -> None:
    class Drawn(Program):
        def model(self) -> None:
            subsampling(4, 2)()

    with pytest.raises(InputError, match="'c' is in the subsampled plate 'points'"):
        NaturalGradient().fit(Drawn(), generator=rng())
