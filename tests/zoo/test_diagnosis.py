"""What is wrong with a program is named: the site, its distribution, and what it is not linear in."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch

from scool_ppl import BlockBernoulli, GraphPrior, InputError, OneHot
from scool_ppl.infer.bound import MomentELBO
from scool_ppl.infer.enumeration import enumerated_bound
from scool_ppl.infer.priors import Joint
from scool_ppl.zoo.diagnosis import check_repeats, infinite, kind_of, not_linear
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import Distant, mmsbm, sbm, scattered


class Pairs(GraphPrior):
    """Memberships, popularities pi, and a factor of both; `bad` says which term is no longer linear."""

    def __init__(self, bad: str = "") -> None:
        super().__init__(3)
        self.bad = bad

    def model(self, evidence: Any) -> torch.Tensor:
        with self.clients:
            pi = pyro.sample("pi", dist.Dirichlet(torch.ones(2)))
            z = pyro.sample("z", OneHot(pi))
        odds = (self.receiver(z) * self.sender(z)).sum(-1) if self.bad == "edges" else torch.tensor(0.3)
        with self.edges:
            graph = pyro.sample("Y", dist.Bernoulli(logits=odds.expand(3, 3)))
        degree = graph.sum(-1)
        pyro.factor("hubs", (degree.square() if self.bad == "hubs" else degree).sum())
        pyro.factor("alike", (z[0] * z[1]).sum() + (pi[0, 0] if self.bad == "alike" else 0.0))
        return graph


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("", ""),
        ("edges", "site 'Y' (Bernoulli) is not linear in 'z'"),
        ("hubs", "the factor 'hubs' is not linear in 'Y'"),
        ("alike", "the factor 'alike' is not linear in 'pi'"),
    ],
)
def test_the_term_that_is_not_linear_is_named(bad: str, words: str) -> None:
    log_lik = random_log_lik(3)
    joint, evidence = Joint(Pairs(bad), log_lik), evidence_of(log_lik)
    assert not_linear(joint, scattered(joint, evidence), evidence) == words


class Below(GraphPrior):
    """A membership u that depends on a membership v, as models/README.md writes it, or as one would at first."""

    def __init__(self, exact: bool) -> None:
        super().__init__(2)
        self.table, self.exact = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), exact

    def model(self, evidence: Any) -> torch.Tensor:
        with self.clients:
            v = pyro.sample("v", OneHot(torch.ones(2) / 2))
            u = pyro.sample("u", OneHot((v @ self.table.log()).exp() if self.exact else v @ self.table))
        with self.edges:
            return pyro.sample("Y", BlockBernoulli(self.receiver(u), self.sender(u), torch.eye(2) * 0.6 + 0.2))


@pytest.mark.parametrize(("exact", "words"), [(True, ""), (False, "site 'u' (OneHot) is not linear in 'v'")])
def test_a_membership_may_depend_on_another(exact: bool, words: str) -> None:
    log_lik = random_log_lik(2)
    joint, evidence = Joint(Below(exact), log_lik), evidence_of(log_lik)
    guide = scattered(joint, evidence)
    assert not_linear(joint, guide, evidence) == words
    bounds = float(MomentELBO().bound(joint, guide, evidence).detach()), enumerated_bound(joint, guide, evidence)
    assert (abs(bounds[0] - bounds[1]) < 1e-6) == exact


@pytest.mark.parametrize("prior", [sbm(4, 2), mmsbm(4, 2), Distant(4)], ids=["sbm", "mmsbm", "distant"])
def test_priors_that_are_linear_pass(prior: GraphPrior) -> None:
    log_lik = random_log_lik(4)
    joint, evidence = Joint(prior, log_lik), evidence_of(log_lik)
    guide = scattered(joint, evidence)
    assert not_linear(joint, guide, evidence) == ""
    assert infinite(joint, guide, evidence) is None
    with torch.random.fork_rng():
        check_repeats(prior, evidence)


def test_what_is_no_finite_number_is_named() -> None:
    class Impossible(Pairs):
        def model(self, evidence: Any) -> torch.Tensor:
            graph = super().model(evidence)
            pyro.factor("impossible", (1 - graph.sum().detach() / graph.sum().detach()).log())
            return graph

    log_lik = random_log_lik(3)
    joint, evidence = Joint(Impossible(), log_lik), evidence_of(log_lik)
    guide = scattered(joint, evidence)
    assert infinite(joint, guide, evidence) == "the factor 'impossible' has the log-density -inf"


def test_a_site_that_comes_and_goes_is_no_program() -> None:
    class Sometimes(Pairs):
        runs = 0

        def model(self, evidence: Any) -> torch.Tensor:
            self.runs += 1
            if self.runs % 2:
                pyro.sample("extra", dist.Normal(0.0, 1.0))
            return super().model(evidence)

    with torch.random.fork_rng(), pytest.raises(InputError, match=r"site 'extra' \(Normal\) differs between two runs"):
        check_repeats(Sometimes(), evidence_of(random_log_lik(3)))


def test_a_distribution_is_named_without_its_wrappers() -> None:
    fn = dist.Normal(torch.zeros(2), 1.0).to_event(1).mask(torch.tensor(True))
    assert type(kind_of(fn)) is dist.Normal
