"""Pyro's own machinery on priors, as on any Pyro program: autoguides, enumeration, many draws at once, NUTS."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, config_enumerate, infer_discrete
from pyro.infer.autoguide import (
    AutoDelta,
    AutoDiagonalNormal,
    AutoGuideList,
    AutoHierarchicalNormalMessenger,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from pyro.nn import PyroParam, PyroSample
from torch import Tensor

from scool_ppl import AutoMeanField, GraphPrior, InputError, OneHot, load_model
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer import Joint, Marginal
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, planted, random_log_lik
from tests.helpers.priors import attending, attention, known_blocks, mixing, mmsbm, sbm
from tests.helpers.small import close, normal

K = 4


@pytest.fixture(autouse=True)
def _users_store() -> Iterator[None]:
    """The user's param store is empty before and after, and random numbers are where they were."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
    pyro.clear_param_store()


class Activity(GraphPrior):
    """x_i ~ Normal(slope c_i, scale), slope ~ Normal(0, 1), scale ~ Gamma(2, 2), logit P(Y_ij = 1) = b + x_i + x_j."""

    def __init__(self, num_clients: int) -> None:
        super().__init__(num_clients)
        self.b = torch.nn.Parameter(torch.tensor(0.5))
        self.rate = PyroParam(torch.tensor(2.0), constraint=dist.constraints.positive)

    def model(self, evidence: Evidence) -> Tensor:
        slope = pyro.sample("slope", dist.Normal(torch.zeros_like(self.b), 1.0))
        scale = pyro.sample("scale", dist.Gamma(self.rate, 2.0))
        with self.clients:
            x = pyro.sample("x", dist.Normal(slope * torch.linspace(-1, 1, self.num_clients).to(self.b), scale))
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=self.b + self.receiver(x) + self.sender(x)))


def places(num_clients: int = K) -> GraphPrior:
    prior: GraphPrior = load_model("latent_space", num_clients).prior
    return prior


class Apart:
    """A list of guides, one for each site."""

    def __new__(cls, model: Any) -> AutoGuideList:
        guide = AutoGuideList(model)
        for site in ("slope", "scale", "x"):
            if site in poutine.trace(model).get_trace(evidence_of(random_log_lik(K))).nodes:
                guide.append(AutoNormal(poutine.block(model, expose=[site])))
        return guide


GUIDES = [
    AutoNormal,
    AutoDelta,
    AutoDiagonalNormal,
    AutoMultivariateNormal,
    AutoLowRankMultivariateNormal,
    AutoHierarchicalNormalMessenger,
    Apart,
]


@pytest.mark.parametrize("local", [False, True], ids=["store", "local"])
@pytest.mark.parametrize("make", [places, Activity], ids=["places", "hierarchy"])
@pytest.mark.parametrize("guide_of", GUIDES, ids=lambda guide: guide.__name__)
def test_svi_learns_with_every_autoguide(guide_of: Any, make: Any, local: bool) -> None:
    prior, evidence = make(K), evidence_of(random_log_lik(K))
    seen = poutine.condition(prior, data={"Y": torch.ones(K, K)})
    before = {name: value.detach().clone() for name, value in prior.named_parameters()}
    with pyro.settings.context(module_local_params=local):
        guide = guide_of(seen)
        svi = SVI(seen, guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
        losses = [svi.step(evidence) for _ in range(30)]
        names = set(pyro.get_param_store().keys())
        guided = {name: value.detach().clone() for name, value in guide.named_parameters()}
        for _ in range(2):
            svi.step(evidence)
    assert sum(losses[-5:]) < sum(losses[:5])
    assert all(not torch.equal(value, before[name]) for name, value in prior.named_parameters()), "learned, too"
    moved = {name for name, value in guide.named_parameters() if not torch.equal(value, guided[name])}
    assert {name for name in guided if not name.startswith("weights")} <= moved  # of a mean of 0 a weight has no slope
    assert not names & {"b", "rate"}, "a prior's parameters are its own"
    if local or guide_of is AutoHierarchicalNormalMessenger:  # which runs inside the prior
        assert not names
    else:
        assert names
        assert all(name.startswith("Auto") for name in names)


def test_a_discrete_site_is_hidden_or_summed_out() -> None:
    """Hidden from the guide and enumerated by Pyro it gives what the marginal gives."""
    log_lik = planted(K, 2, 0.3)[1]
    joint, evidence = Joint(places().double(), log_lik), evidence_of(log_lik)
    with pytest.raises(ValueError, match="cannot handle discrete sample site 'Y'"):
        AutoNormal(joint)(evidence)
    guide, summed = AutoNormal(poutine.block(joint, hide=["Y"])), Marginal(joint, evidence)
    guide(evidence)
    drawn = poutine.trace(guide).get_trace(evidence)
    at = {"x": drawn.nodes["x"]["value"]}
    enumerated = TraceEnum_ELBO(max_plate_nesting=2).loss(
        config_enumerate(poutine.condition(joint, data=at)), lambda evidence: None, evidence
    )
    found = poutine.trace(poutine.replay(summed, trace=drawn)).get_trace().log_prob_sum()
    close(found, torch.tensor(-enumerated), 1e-5)


class Teachers(GraphPrior):
    """Everybody picks one teacher: Y_i ~ Categorical(softmax_j x_j), x_j ~ Normal(0, 1)."""

    kind = "rows"

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            x = pyro.sample("x", dist.Normal(torch.zeros(()).double(), 1.0))
            return pyro.sample("Y", OneHot(logits=self.row_logits(self.sender(x))))


def enumerable() -> dict[str, tuple[Joint, Evidence, dict[str, Tensor]]]:
    log_lik, z = random_log_lik(K), torch.eye(2).double()[[0, 1, 0, 1]]
    return {
        "Bernoulli": (Joint(places().double(), log_lik), evidence_of(log_lik), {"x": normal(K, 2)}),
        "BlockBernoulli": (*known_blocks(K), {"pi": normal(K, 2).softmax(-1), "z": z}),
        "rows": (Joint(Teachers(K), log_lik), evidence_of(log_lik), {"x": normal(K)}),
    }


@pytest.mark.parametrize("case", ["Bernoulli", "BlockBernoulli", "rows"])
def test_pyro_sums_over_the_graph_as_we_do(case: str) -> None:
    """Edges, and rows, are independent given the latents: Pyro's enumeration gives the marginal's value and mean."""
    joint, evidence, latents = enumerable()[case]
    program = config_enumerate(poutine.condition(joint, data=latents))
    expected = poutine.trace(poutine.condition(Marginal(joint, evidence), data=latents)).get_trace()
    elbo, mask = TraceEnum_ELBO(max_plate_nesting=2), evidence.peers.mask
    close(torch.tensor(-elbo.loss(program, lambda evidence: None, evidence)), expected.log_prob_sum())
    if case != "BlockBernoulli":  # of which Pyro cannot make another by logits
        found = elbo.compute_marginals(program, lambda evidence: None, evidence)["Y"].mean
        close(found[mask], expected.nodes["Y"]["value"][mask])
    if case != "rows":
        graphs = torch.stack([infer_discrete(program, first_available_dim=-3)(evidence) for _ in range(100)])
        p = expected.nodes["Y"]["value"]
        assert bool(((graphs.mean(0) - p).abs() < 5 * (p * (1 - p) / 100).sqrt() + 0.05)[mask].all())


@pytest.mark.parametrize("num_clients", [2, 3], ids=["as many clients as blocks", "more"])
def test_memberships_that_meet_in_an_edge_are_refused_in_one_line(num_clients: int) -> None:
    joint, evidence = known_blocks(num_clients)
    program = config_enumerate(joint)
    runs = (
        lambda: TraceEnum_ELBO(max_plate_nesting=2).loss(program, lambda evidence: None, evidence),
        lambda: infer_discrete(program, first_available_dim=-3)(evidence),
        lambda: MCMC(NUTS(Marginal(joint, evidence)), 1, warmup_steps=1, disable_progbar=True).run(),
    )
    for run in runs:
        with pytest.raises(InputError, match="'z' of the clients is enumerated") as found:
            run()
        assert "MomentELBO" in str(found.value)
        assert "NaturalGradient" in str(found.value)
        assert len(str(found.value).splitlines()) == 1


TABLE = Peers(torch.ones(K, 2, dtype=torch.bool), torch.tensor([[1, 2], [2, 3], [3, 0], [0, 1]]))


@pytest.mark.parametrize(
    ("prior", "table"),
    [
        (places, False),
        (places, True),
        (partial(sbm, K, 2), False),
        (partial(sbm, K, 2), True),
        (partial(sbm, K, K), False),
        (partial(mmsbm, K), False),
        (partial(attention, K), False),
        (partial(mixing, K), False),
        (partial(Teachers, K), False),
    ],
)
def test_many_draws_at_once_are_draws_one_by_one(prior: Any, table: bool) -> None:
    """Predictive(parallel=True) puts a plate around the program; given the latents the log density is the same."""
    program = prior()
    evidence = attending(random_log_lik(K), includes_self=program.includes_self)
    if table:
        evidence = Evidence.given(loss=torch.rand(K, 2).double(), peers=TABLE)
    shape = evidence.peers.mask.shape
    draws = Predictive(program, num_samples=6, parallel=True)(evidence)
    assert draws["Y"].shape == (6, *shape)
    joint = Joint(program, random_log_lik(K)[:, : shape[1]])
    trace = poutine.trace(pyro.plate("draws", 6, dim=-3)(joint)).get_trace(evidence)
    trace.compute_log_prob()
    for number in range(6):
        values = {}
        for name, site in trace.nodes.items():
            if site["type"] == "sample" and not site["is_observed"] and "value" in site and name not in PLATES:
                value = site["value"][number]
                values[name] = value.squeeze(0) if value.shape[0] == 1 else value
        one = poutine.trace(poutine.condition(joint, data=values)).get_trace(evidence)
        together = sum(
            site["log_prob"].expand(6, *site["log_prob"].shape[1:])[number].sum()
            for name, site in trace.nodes.items()
            if site["type"] == "sample" and name not in PLATES
        )
        close(torch.as_tensor(together), one.log_prob_sum())


PLATES = ("clients", "receivers", "senders", "draws")


def test_nuts_on_a_prior_and_on_the_joint_agree() -> None:
    """A PyroSample makes a latent of a learned number; given the graph that was drawn NUTS finds which made it."""
    prior = places(6)
    prior.b = PyroSample(dist.Normal(2.0, 2.0))
    evidence, x = evidence_of(random_log_lik(6)), 1.5 * normal(6, 2)
    given = poutine.condition(prior, data={"x": x, "Y": (torch.cdist(x, x) < 1.2).double()})
    mcmc = MCMC(NUTS(given), num_samples=150, warmup_steps=50, disable_progbar=True)
    mcmc.run(evidence)
    draws = mcmc.get_samples()["b"]
    assert draws.shape == (150,)
    grid = torch.linspace(-6, 12, 1801).double()
    off = evidence.peers.mask
    odds = grid[:, None] - (3 * ((x[:, None] - x).square().sum(-1) + 1e-6).sqrt())[off]
    y = (torch.cdist(x, x) < 1.2)[off]
    scores = -((grid - 2) / 2).square() / 2 + torch.where(y, odds, -odds).sigmoid().log().sum(1)
    mean = float((scores.softmax(0) * grid).sum())
    assert float(draws.mean()) == pytest.approx(mean, abs=0.3)


def test_our_guide_beside_pyros_bounds() -> None:
    joint, evidence = known_blocks(3)
    guide = AutoMeanField(joint)
    svi = SVI(joint, guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
    assert all(torch.isfinite(torch.tensor(svi.step(evidence))) for _ in range(3))
    assert not pyro.get_param_store().keys()


@pytest.mark.parametrize("make", [places, Activity], ids=["places", "hierarchy"])
def test_particles_at_once_have_the_bound_of_particles_one_by_one(make: Any) -> None:
    """The graph by enumeration, the rest at a point, so that all particles are the same."""
    log_lik, prior = random_log_lik(K), make(K)
    joint, evidence = Joint(prior.double(), log_lik), evidence_of(log_lik)
    guide = AutoDelta(poutine.block(joint, hide=["Y"]))
    bounds = []
    for together in (True, False):
        elbo = TraceEnum_ELBO(max_plate_nesting=2, num_particles=3, vectorize_particles=together)
        bounds.append(-elbo.loss(config_enumerate(joint), guide, evidence))
    assert bounds[0] == pytest.approx(bounds[1], abs=1e-9)
