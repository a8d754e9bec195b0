"""AutoMeanField: a Pyro guide that reads its factors off the model."""

from __future__ import annotations

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

from scool_ppl import (
    AutoMeanField,
    GraphPrior,
    InputError,
)
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.priors.base import Joint
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import (
    Positions,
    attending,
    attention,
    known_blocks,
    scattered,
    some_masked,
)
from tests.helpers.small import close, normal, uniform


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


def test_the_guide_is_a_pyro_guide() -> None:
    joint, evidence = known_blocks()
    guide = scattered(joint, evidence)
    trace = poutine.trace(guide).get_trace(evidence)
    assert {"pi", "z", "Y"} <= set(trace.nodes)
    assert torch.equal(trace.nodes["Y"]["mask"], evidence.peers.mask)
    drawing = pyro.render_model(guide, model_args=(evidence,))
    assert all(f"{site} " in drawing.source or f"\t{site}" in drawing.source for site in ("pi", "z", "Y"))


def test_values_and_load_are_inverse() -> None:
    joint, evidence = known_blocks()
    guide = scattered(joint, evidence)
    other = AutoMeanField(joint)
    other.setup(evidence)
    other.load(guide.values())
    assert all(torch.allclose(value, other.values()[name], atol=1e-12) for name, value in guide.values().items())
    assert not pyro.get_param_store().keys()


def test_its_factors_are_read_off_the_model() -> None:
    joint, evidence = known_blocks()
    guide = AutoMeanField(joint)
    assert guide.sites == ()
    guide.setup(evidence)
    assert guide.kinds == {"pi": "dirichlet", "z": "one-hot", "Y": "bernoulli"}
    assert guide.sites == ("pi", "z", "Y")
    assert {name: guide.parameter_name(name) for name in guide.sites} == {
        "pi": "pi_concentration",
        "z": "z_logits",
        "Y": "Y_logits",
    }
    assert torch.equal(guide.mask("Y"), evidence.peers.mask)
    assert set(guide.values()) == {"pi_concentration", "z_logits", "Y_logits"}


def test_a_continuous_site_gets_a_normal_with_its_events() -> None:
    log_lik = random_log_lik(3)
    evidence = evidence_of(log_lik)
    guide = AutoMeanField(Joint(Positions(3).double(), log_lik))
    guide.setup(evidence)
    guide.load({"x_loc": normal(3, 2), "x_scale": torch.full((3, 2), 0.5).double()})
    q = guide.distribution("x")
    assert (q.batch_shape, q.event_shape) == ((3,), (2,))
    value = normal(3, 2, seed=1)
    expected = (-0.5 * ((value - normal(3, 2)) / 0.5) ** 2 - math.log(0.5) - 0.5 * math.log(2 * math.pi)).sum(-1)
    close(q.log_prob(value), expected)


def test_a_constrained_site_stays_in_its_support() -> None:
    def model() -> None:
        pyro.sample("a.rate", dist.Gamma(2.0, 1.0))

    guide = AutoMeanField(model)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = torch.stack([guide()["a.rate"] for _ in range(50)])
    assert bool((draws > 0).all())
    assert set(guide.values()) == {"a_rate_loc", "a_rate_scale"}


def test_what_the_model_never_chooses_the_guide_never_chooses() -> None:
    mask, log_lik = some_masked(4), random_log_lik(4)
    guide = scattered(Joint(attention(4), log_lik), attending(log_lik, mask))
    mean = guide.distribution("Y").mean
    assert not bool(mean[~mask].any())
    close(mean.sum(1), torch.ones(4))


def test_parameters_that_fit_are_kept_and_others_begin_anew() -> None:
    """A table of two candidates per client after everybody: the memberships stay, the edges do not."""
    joint, evidence = known_blocks(4)
    guide = scattered(joint, evidence)
    before = guide.values()
    senders = torch.tensor([[1, 2], [2, 3], [3, 0], [0, 1]])
    table = Peers(torch.ones(4, 2, dtype=torch.bool), senders)
    log_lik = random_log_lik(4).gather(1, senders)
    other = Joint(joint.prior, log_lik)
    found = AutoMeanField(other)
    found.load(before)
    found.setup(Evidence.given(loss=-log_lik, peers=table))
    found.load(before)
    assert torch.allclose(found.values()["z_logits"], before["z_logits"])
    assert torch.equal(found.values()["Y_logits"], torch.zeros(4, 2).double())


def test_what_is_loaded_is_copied() -> None:
    joint, evidence = known_blocks()
    guide = scattered(joint, evidence)
    values = {"Y_logits": torch.zeros(3, 3).double()}
    guide.load(values)
    with torch.no_grad():
        for parameter in guide.parameters():
            parameter += 1
    assert not values["Y_logits"].any()


def test_a_site_that_no_factor_fits_is_named() -> None:
    def model() -> None:
        pyro.sample("count", dist.Poisson(torch.tensor(2.0)))

    with pytest.raises(InputError, match=r"'count' is Poisson: no automatic guide fits; write `guide` yourself"):
        AutoMeanField(model)()


def test_a_parameter_that_is_flat_says_nothing() -> None:
    """For every parameter its site, and the value of a newcomer of whom nothing is known."""
    joint, evidence = known_blocks()
    guide = scattered(joint, evidence)
    found = guide.parameters_by_site(evidence)
    assert {name: site for name, (site, _) in found.items()} == {
        "pi_concentration": "pi",
        "z_logits": "z",
        "Y_logits": "Y",
    }
    guide.load({name: torch.full_like(guide.values()[name], value) for name, (_, value) in found.items()})
    close(guide.distribution("z").mean, torch.full((3, 2), 0.5))
    close(guide.distribution("Y").mean, torch.full((3, 3), 0.5))
    close(guide.distribution("pi").log_prob(uniform(3, 2).softmax(-1)), torch.zeros(3))
    places = AutoMeanField(Joint(Positions(3).double(), random_log_lik(3)))
    assert {name: site for name, (site, _) in places.parameters_by_site(evidence).items()} == {
        "x_loc": "x",
        "x_scale": "x",
        "Y_logits": "Y",
    }
