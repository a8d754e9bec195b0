"""What a prior has learned goes to other clients, bit for bit and no more of it, as the start or for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch

from scool_ppl import EM, CooperationModel, Evidence, GraphPrior, SVIStep, likelihoods, mixing
from scool_ppl.deploy import Portfolio, alone
from scool_ppl.em import Learned
from scool_ppl.em.state import EMState
from scool_ppl.errors import InputError
from scool_ppl.infer.priors import SBM
from scool_ppl.zoo import load_model
from tests.helpers.refusals import refuses
from tests.helpers.small import ONE_STEP, brief, clients, networks

Build = Callable[[int], Any]


class Teachers(GraphPrior):
    """Y_ij ~ Bernoulli(sigmoid(slope fame_j + b)): slope and b are everybody's, fame and the guide's odds are not."""

    client_axes = {"fame": (0,)}

    def __init__(self, num_clients: int) -> None:
        super().__init__(num_clients)
        self.slope, self.b = (torch.nn.Parameter(torch.tensor(value)) for value in (1.0, 0.5))
        self.fame = torch.nn.Parameter(torch.linspace(-1, 1, num_clients))
        self.odds = torch.nn.Parameter(torch.zeros(num_clients, num_clients))
        self.given = torch.tensor(2.0)
        self.register_buffer("told", torch.tensor(float(num_clients)))

    def model(self, evidence: Evidence) -> Any:
        with self.edges:
            logits = (self.slope * self.sender(self.fame) + self.b).expand(evidence.peers.mask.shape)
            return pyro.sample("Y", dist.Bernoulli(logits=logits))

    def guide(self, evidence: Evidence) -> None:
        with self.edges:
            pyro.sample("Y", dist.Bernoulli(logits=self.odds))


def teachers(num_clients: int) -> CooperationModel:
    svi = SVIStep(steps=5)
    return CooperationModel(Teachers(num_clients), likelihoods.CrossLoss(), mixing.MixUpdates(), e_step=svi)


def named(model: str, **choices: Any) -> Build:
    return lambda count: brief(load_model(model, count, **choices))


def by_svi(count: int) -> CooperationModel:
    sbm: Any = load_model("scool_sbm", count, blocks=2)
    return sbm._replace(e_step=SVIStep(steps=20, refresh=5))


def driver(build: Build, count: int) -> EM:
    return EM(build(count), clients(count), ONE_STEP, seed=count)


def begin(em: EM) -> EMState:
    """Before the first round, with networks that differ: there is something to learn."""
    return em.init()._replace(params=networks(em.clients))  # type: ignore[arg-type]


def run(em: EM) -> EMState:
    """The state after two rounds."""
    return em.step(em.step(begin(em))[0])[0]


def begun(build: Build, state: EMState, count: int, frozen: bool = False, other: Build | None = None) -> EM:
    other = other or build
    learned = Learned.of(state, "the run", frozen=frozen)
    return learned.begun(driver(other, count), lambda: driver(other, count - 1))


SHARED: dict[str, tuple[Build, set[str]]] = {
    "block model": (named("scool_sbm", blocks=2), {"B_unconstrained", "alpha_unconstrained"}),
    "as many blocks as clients": (named("scool_sbm", blocks=3), {"B_unconstrained", "alpha_unconstrained"}),
    "by SVI": (by_svi, {"B_unconstrained", "alpha_unconstrained"}),
    "encoder": (
        named("meta_l2c"),
        {f"encoder.layers.{layer}.{n}.{part}" for layer in (1, 3) for n in (0, 2) for part in ("weight", "bias")},
    ),
    "coefficient": (named("latent_space", steps=5), {"b"}),
    "own guide": (teachers, {"slope", "b"}),
}


@pytest.mark.parametrize("count", [3, 4], ids=["as many clients", "more clients"])
@pytest.mark.parametrize(("build", "shared"), SHARED.values(), ids=SHARED)
def test_before_the_first_round_the_values_are_those_that_were_learned(
    build: Build, shared: set[str], count: int
) -> None:
    last = run(driver(build, 3))
    here, fresh = begun(build, last, count).init().prior, driver(build, count).init().prior
    assert here.keys() == fresh.keys()
    for name, value in here.items():
        assert torch.equal(value, last.prior[name] if name in shared else fresh[name]), name
    assert any(not torch.equal(last.prior[name], driver(build, 3).prior_start[name]) for name in shared), "it learns"


@pytest.mark.parametrize(("build", "shared"), SHARED.values(), ids=SHARED)
def test_what_is_frozen_stays_and_the_rest_learns(build: Build, shared: set[str]) -> None:
    last = run(driver(build, 3))
    em, free = begun(build, last, 4, frozen=True), begun(build, last, 4)
    after, moved = run(em), run(free)
    for name, value in after.prior.items():
        if name in shared:
            assert torch.equal(value, last.prior[name]), name
    assert any(not torch.equal(moved.prior[name], last.prior[name]) for name in shared)
    own = {name for name, _ in em.model.prior.named_parameters()} - shared
    assert all(not torch.equal(after.prior[name], em.prior_start[name]) for name in own), own


def test_the_start_is_where_the_first_e_step_begins() -> None:
    """A frozen B is the B of the bound: by hand, the step of a prior that was built with it."""
    build = named("scool_sbm", blocks=2, learn_alpha=False)
    em = begun(build, run(driver(build, 3)), 4, frozen=True)
    state, info = em.step(begin(em))
    prior = SBM(4, 2, learn_alpha=False)
    prior.load_state_dict(em.prior_start)
    prior.closed_form = lambda moments, evidence: {}  # type: ignore[method-assign, assignment]
    prior.B_unconstrained.requires_grad_(False)
    twin = EM(em.model._replace(prior=prior), clients(4), ONE_STEP, seed=4)
    expected, told = twin.step(begin(twin))
    assert info.elbo == told.elbo
    assert torch.equal(state.moments["Y"], expected.moments["Y"])


def test_the_other_driver_is_left_as_it_was() -> None:
    build = named("scool_sbm", blocks=2)
    em = driver(build, 4)
    before = em.init().prior
    Learned.of(run(driver(build, 3)), "the run", frozen=True).begun(em, lambda: driver(build, 3))
    assert all(torch.equal(value, before[name]) for name, value in em.init().prior.items())
    assert all(parameter.requires_grad for parameter in em.model.prior.parameters())
    assert not em.model.prior.frozen


def test_tracks_of_a_portfolio_have_their_own() -> None:
    def build(count: int) -> Portfolio:
        tracks = {"local": alone(count), "teachers": teachers(count), "blocks": named("scool_sbm", blocks=2)(count)}
        return Portfolio(tracks, shown="blocks")

    last = run(driver(build, 3))
    em = begun(build, last, 3)
    start = em.init()
    assert torch.equal(start.prior["B_unconstrained"], last.prior["B_unconstrained"])
    assert torch.equal(start.beside["teachers"].prior["slope"], last.beside["teachers"].prior["slope"])
    assert torch.equal(start.beside["teachers"].prior["odds"], torch.zeros(3, 3))
    assert run(em).beside.keys() == last.beside.keys()


def test_a_model_that_is_of_so_many_clients_only_is_transferred_to_as_many() -> None:
    """As one that is told their distances in a file: it cannot be made for one client fewer."""

    def build(count: int) -> CooperationModel:
        if count != 3:
            raise InputError(f"distances are (3, 3), expected {count} by {count}")
        return teachers(count)

    last = run(driver(build, 3))
    here, fresh = begun(build, last, 3).init().prior, driver(build, 3).init().prior
    assert all(torch.equal(here[name], last.prior[name]) for name in ("slope", "b"))
    assert all(torch.equal(here[name], fresh[name]) for name in ("fame", "odds"))


def test_what_cannot_be_transferred_is_refused() -> None:
    l2c, sbm = named("l2c"), named("scool_sbm", blocks=2)
    refuses(lambda: begun(l2c, run(driver(l2c, 3)), 4), "belongs to its own clients (FreeRows), expected a parameter")
    local = named("local")
    refuses(lambda: begun(local, run(driver(local, 3)), 3), "(Dirac)")
    last = run(driver(sbm, 3))
    for count in (3, 4):
        words = "'B_unconstrained' of SBM is (3, 3), of the run (2, 2); take the same hyperparameters"
        refuses(lambda count=count: begun(sbm, last, count, other=named("scool_sbm", blocks=3)), words)
    refuses(lambda: begun(sbm, last, 4, other=teachers), "of the run there is none")


def test_what_was_asked_for_tells_values_apart() -> None:
    last = run(driver(named("scool_sbm", blocks=2), 3))
    one = Learned.of(last, "the run")
    other = Learned.of(
        last._replace(prior={**last.prior, "B_unconstrained": last.prior["B_unconstrained"] + 1}), "the run"
    )
    assert one.request == Learned.of(last, "the run").request
    assert len({str(each.request) for each in (one, other, one._replace(frozen=True))}) == 3
