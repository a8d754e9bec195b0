"""The bound by enumeration, the truth of other tests, against bounds written out by hand."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

from scool_ppl import MomentELBO, NaturalGradient
from scool_ppl.infer.enumeration import enumerated_bound, factors
from scool_ppl.infer.priors.base import Joint
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import (
    Distant,
    Several,
    attending,
    attention,
    known_blocks,
    rng,
    scattered,
    some_masked,
)


def test_enumeration_sees_every_configuration() -> None:
    """Independent of Pyro: the bound of one free edge pair, written out by hand."""
    joint, evidence = known_blocks(2, 1)
    guide = scattered(joint, evidence)
    w, ell, b = guide.distribution("Y").mean.detach(), joint.log_lik, 0.85
    off = ~torch.eye(2, dtype=torch.bool)
    odds = ell + math.log(b) - math.log(1 - b)
    entropy = torch.special.entr(w) + torch.special.entr(1 - w)
    by_hand = float((w * odds + entropy)[off].sum()) + 2 * math.log(1 - b)
    assert enumerated_bound(joint, guide, evidence) == pytest.approx(by_hand, abs=1e-10)


def test_at_the_exact_posterior_the_bound_is_the_evidence() -> None:
    """One block: edges are independent coins of bias b, so that p(D) = product of 1 - b + b exp(log_lik)."""
    joint, evidence = known_blocks(3, 1)
    guide = scattered(joint, evidence)
    b, off = 0.85, ~torch.eye(3, dtype=torch.bool)
    log_lik = joint.table
    assert log_lik is not None
    alpha = joint.prior.alpha.detach()
    guide.load({"Y_logits": log_lik + math.log(b) - math.log(1 - b), "pi_concentration": (alpha + 1).expand(3, 1)})
    log_evidence = float((1 - b + b * log_lik.exp()).log()[off].sum())
    assert enumerated_bound(joint, guide, evidence) == pytest.approx(log_evidence, abs=1e-10)


def test_the_factors_are_the_free_edges_and_the_memberships() -> None:
    joint, evidence = known_blocks(mask=some_masked(3))
    guide = scattered(joint, evidence)
    found = factors(guide)
    places = [(choices[0].site, choices[0].place) for choices in found]
    edges = {(0, 1), (1, 0), (1, 2), (2, 0)}
    assert len(places) == len(set(places)) == 4 + 3
    assert {place for site, place in places if site == "Y"} == edges
    assert {place[-1] for site, place in places if site == "z"} == {0, 1, 2}
    for choices in found:
        assert len(choices) == 2
        assert sum(math.exp(choice.log_q) for choice in choices) == pytest.approx(1, abs=1e-12)


def test_what_has_probability_zero_is_no_choice() -> None:
    log_lik = random_log_lik(4)
    prior, evidence = attention(4), attending(log_lik, some_masked(4))
    found = factors(scattered(Joint(prior, log_lik), evidence))
    assert [len(choices) for choices in found] == some_masked(4).sum(1).tolist()
    for choices in found:
        (client,) = choices[0].place
        assert all(some_masked(4)[client, int(choice.value.argmax())] for choice in choices)


@pytest.mark.parametrize("kind", [Distant, Several])
@pytest.mark.parametrize("masked", [False, True])
def test_edges_that_differ_in_more_than_their_blocks_keep_an_exact_bound(kind: type[Distant], masked: bool) -> None:
    """Every configuration of three clients in two blocks, 2^6 graphs each."""
    log_lik = random_log_lik(3)
    joint, evidence = Joint(kind(3), log_lik), evidence_of(log_lik, some_masked(3) if masked else None)
    guide = scattered(joint, evidence)
    exact = float(MomentELBO().bound(joint, guide, evidence).detach())
    assert exact == pytest.approx(enumerated_bound(joint, guide, evidence), abs=1e-10)


@pytest.mark.parametrize("kind", [Distant, Several])
def test_coordinate_ascent_on_it_is_compiled_and_ends_at_its_bound(kind: type[Distant]) -> None:
    log_lik = random_log_lik(3)
    evidence = evidence_of(log_lik)
    joint = Joint(kind(3), log_lik)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what cannot be compiled warns
        found = NaturalGradient()(joint, evidence, {}, rng())
    guide = scattered(joint, evidence)
    guide.load(found.q)
    assert found.elbo == pytest.approx(enumerated_bound(joint, guide, evidence), abs=1e-8)
    assert found.elbo > found.bounds[0]
