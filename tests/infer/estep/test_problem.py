"""What is fitted: only what is looked at counts, and programs of one kind are compared with Pyro once."""

from __future__ import annotations

import pytest
import torch

from scool_ppl import NaturalGradient
from scool_ppl.infer.estep.base import Posterior
from scool_ppl.infer.priors.base import Joint
from tests.helpers.evidence import evidence_of, planted, random_log_lik
from tests.helpers.priors import mmsbm, rng, sbm


def test_an_isolated_client_and_masked_pairs_have_no_influence() -> None:
    _, log_lik = planted(8, 2, noise=0.3)
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[3] = mask[:, 3] = False
    mask[0, 1] = False
    results: list[Posterior] = []
    for value in (0.0, 50.0, torch.nan):
        changed = torch.where(mask, log_lik, torch.tensor(value).double())
        evidence = evidence_of(torch.nan_to_num(changed), mask)
        results.append(NaturalGradient()(Joint(sbm(8, 4), changed), evidence, {}, rng()))
    for other in results[1:]:
        assert other.bounds == results[0].bounds
        assert torch.equal(other.moments["z"], results[0].moments["z"])
        looked = mask & ~torch.eye(8, dtype=torch.bool)
        assert torch.equal(other.moments["Y"][looked], results[0].moments["Y"][looked])


def test_derivatives_are_compared_once_for_each_kind_of_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.infer.estep.problem._COMPARED", set())
    asked: list[object] = []
    monkeypatch.setattr("scool_ppl.infer.estep.problem.check_derivatives", lambda *given: asked.append(given))
    log_lik = random_log_lik(5)
    for prior in (sbm(5, 3), sbm(5, 3), mmsbm(5)):
        NaturalGradient(sweeps=1)(Joint(prior, log_lik), evidence_of(log_lik), {}, rng())
    assert len(asked) == 2
