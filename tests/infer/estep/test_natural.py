"""NaturalGradient: starts, restarts, and what its result does not depend on."""

from __future__ import annotations

import pytest
import torch

from scool_ppl import InputError, NaturalGradient
from scool_ppl.infer.priors.base import Joint
from tests.helpers.evidence import evidence_of, planted
from tests.helpers.priors import rng, sbm


def test_restarts_keep_the_highest_bound() -> None:
    _, log_lik = planted(40, 8, noise=1.0)
    evidence = evidence_of(log_lik)
    bounds = []
    for restarts in (0, 6):
        prior = sbm(40, 8, spectral=False)
        bounds.append(NaturalGradient(restarts=restarts)(Joint(prior, log_lik), evidence, {}, rng()).elbo)
    assert bounds[1] > bounds[0]


def test_a_warm_start_is_kept_and_softened() -> None:
    _, log_lik = planted(20, 4, noise=0.5)
    evidence = evidence_of(log_lik)
    prior = sbm(20, 8)
    first = NaturalGradient()(Joint(prior, log_lik), evidence, {}, rng())
    again = NaturalGradient()(Joint(prior, log_lik), evidence, first.q, rng(1))
    assert torch.equal(first.moments["z"].argmax(1), again.moments["z"].argmax(1))
    assert again.elbo >= first.elbo - 1e-3 * abs(first.elbo)
    assert len(again.bounds) <= len(first.bounds)


def test_permuting_the_clients_permutes_the_result() -> None:
    _, log_lik = planted(10, 2, noise=0.5)
    order = torch.randperm(10, generator=rng(3))
    here = NaturalGradient(tol=1e-10, sweeps=200)(Joint(sbm(10, 4), log_lik), evidence_of(log_lik), {}, rng())
    moved = log_lik[order][:, order]
    there = NaturalGradient(tol=1e-10, sweeps=200)(Joint(sbm(10, 4), moved), evidence_of(moved), {}, rng())
    assert torch.allclose(here.moments["Y"][order][:, order], there.moments["Y"], atol=1e-5)


@pytest.mark.parametrize("options", [{"sweeps": 0}, {"step": 0.0}, {"step": 1.5}, {"blocks": 0}, {"keep": 0.0}])
def test_settings_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected"):
        NaturalGradient(**options)  # type: ignore[arg-type]
