"""SVIStep: where coordinate ascent ends, and guides of one's own."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from scool_ppl import (
    GraphPrior,
    InputError,
    NaturalGradient,
    SVIStep,
)
from scool_ppl.infer.priors.base import Joint
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, planted, random_log_lik
from tests.helpers.priors import (
    attending,
    attention,
    known_blocks,
    mixed_evidence,
    mixing,
    mmsbm,
    rng,
    sbm,
)
from tests.helpers.small import close, normal


def test_natural_gradient_and_svi_reach_the_same_optimum() -> None:
    group, log_lik = planted(9, 3, noise=0.7)
    evidence = evidence_of(log_lik)
    found = {}
    for name, step in {
        "natural": NaturalGradient(sweeps=200, tol=1e-9),
        "svi": SVIStep(steps=700, optim=pyro.optim.ClippedAdam({"lr": 0.4, "lrd": 0.997})),
    }.items():
        prior = sbm(9, 3, learn_alpha=False)
        found[name] = step(Joint(prior, log_lik), evidence, {}, rng())
    natural, svi = found["natural"], found["svi"]
    assert svi.elbo == pytest.approx(natural.elbo, abs=1e-3)
    assert torch.allclose(natural.moments["Y"], svi.moments["Y"], atol=1e-3)
    together = [found.moments["z"] @ found.moments["z"].T for found in (natural, svi)]  # blocks have no names
    assert torch.allclose(*together, atol=1e-3)
    assert adjusted_rand_score(group, natural.moments["z"].argmax(1)) == 1


def test_svi_of_the_mmsbm_ends_where_coordinate_ascent_does() -> None:
    _, log_lik = planted(4, 2, noise=0.3)
    evidence = evidence_of(log_lik)
    found = {}
    start: dict[str, Tensor] = {}
    for name, step in {
        "natural": NaturalGradient(sweeps=300, tol=1e-10),
        "svi": SVIStep(steps=350, optim=pyro.optim.ClippedAdam({"lr": 0.3, "lrd": 0.99}), keep=1.0),
    }.items():
        prior = mmsbm(4, learn_alpha=False)
        found[name] = step(Joint(prior, log_lik), evidence, start, rng())
        # The bound has many local optima: SVI starts in the basin of the other, a good way off.
        start = {key: 0.7 * value if "logits" in key else value + 0.5 for key, value in found[name].q.items()}
    natural, svi = found["natural"], found["svi"]
    assert svi.bounds[0] < natural.elbo - 0.05
    assert svi.elbo == pytest.approx(natural.elbo, abs=1e-3)
    mask = evidence.peers.mask
    for site in ("Y", "z_receiver", "z_sender"):
        close(svi.moments[site][mask], natural.moments[site][mask], 1e-3)
    gamma = {name: posterior.q["pi_concentration"] for name, posterior in found.items()}
    close(gamma["svi"] / gamma["svi"].sum(1, True), gamma["natural"] / gamma["natural"].sum(1, True), 1e-3)


def test_svi_of_attention_and_the_mixture_ends_where_coordinate_ascent_does() -> None:
    log_lik = random_log_lik(4)
    for prior, evidence in (
        (attention(4, learn=False), attending(log_lik)),
        (mixing(4, log_pi=normal(4, 4, seed=2)), mixed_evidence(log_lik)),
    ):
        joint = Joint(prior, log_lik)
        natural = NaturalGradient()(joint, evidence, {}, rng())
        svi = SVIStep(steps=500, optim=pyro.optim.Adam({"lr": 0.2}))(joint, evidence, {}, rng())
        assert svi.elbo == pytest.approx(natural.elbo, abs=1e-3)
        close(svi.moments["Y"], natural.moments["Y"], 1e-3)


class Continuous(GraphPrior):
    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            x = pyro.sample("x", dist.Normal(0.0, 1.0))
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=1 - (self.receiver(x) - self.sender(x)).abs()))


class OwnGuide(Continuous):
    """A guide that says all clients are at one learned place, in ten lines."""

    def __init__(self, num_clients: int, learn: bool = True) -> None:
        super().__init__(num_clients)
        self.logits = torch.nn.Parameter(torch.zeros(num_clients, num_clients)) if learn else None

    def guide(self, evidence: Evidence) -> None:
        logits = torch.zeros(self.num_clients, self.num_clients) if self.logits is None else self.logits
        with self.clients:
            pyro.sample("x", dist.Delta(torch.zeros(self.num_clients)))
        with self.edges:
            pyro.sample("Y", dist.Bernoulli(logits=logits))


def test_svi_infers_a_continuous_prior_and_natural_gradient_says_to_use_it() -> None:
    _, log_lik = planted(8, 2, noise=0.3)
    joint, evidence = Joint(Continuous(8).double(), 2 * log_lik), evidence_of(log_lik)
    with pytest.raises(InputError, match=r"'x' is continuous.*SVIStep"):
        NaturalGradient()(joint, evidence, {}, rng())
    found = SVIStep(steps=150)(joint, evidence, {}, rng())
    assert found.elbo > found.bounds[0]
    assert set(found.q) == {"x_loc", "x_scale", "Y_logits"}


def test_svi_trains_a_prior_s_own_guide() -> None:
    log_lik = random_log_lik(4)
    prior = OwnGuide(4).double()
    found = SVIStep(steps=300)(Joint(prior, log_lik), evidence_of(log_lik), {}, rng())
    off = ~torch.eye(4, dtype=torch.bool)
    # With every x at 0 the optimum is known: logit w = log_lik + 1.
    assert torch.allclose(found.moments["Y"][off], torch.sigmoid(log_lik + 1)[off], atol=1e-2)
    with pytest.raises(InputError, match="writes its own guide"):
        NaturalGradient()(Joint(prior, log_lik), evidence_of(log_lik), {}, rng())


def test_svi_without_any_parameter_raises() -> None:
    log_lik = random_log_lik(4)
    with pytest.raises(InputError, match="no learnable parameter"):
        SVIStep(steps=2)(Joint(OwnGuide(4, learn=False), log_lik), evidence_of(log_lik), {}, rng())


def test_the_moment_of_a_dirichlet_in_the_result_is_its_mean() -> None:
    joint, evidence = known_blocks()
    found = SVIStep(steps=3)(joint, evidence, {}, rng())
    concentration = found.q["pi_concentration"]
    close(found.moments["pi"], concentration / concentration.sum(-1, keepdim=True))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 0}, "expected at least one of each"),
        ({"refresh": 0}, "expected at least one of each"),
        ({"keep": 0.0}, r"keep in \(0, 1\]"),
        ({"optim": torch.optim.Adam}, "optim of SVIStep"),
        ({"elbo": "moment"}, "elbo of SVIStep"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        SVIStep(**options)  # type: ignore[arg-type]
