"""What holds for all priors."""

from __future__ import annotations

import math

import pytest
import torch

from scool_ppl import (
    GraphPrior,
    MomentELBO,
    NaturalGradient,
)
from scool_ppl.infer.priors.base import Joint
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import (
    attending,
    attention,
    mixed_evidence,
    mixing,
    mmsbm,
    rng,
    scattered,
)
from tests.helpers.small import close


def every_prior(num_clients: int) -> list[tuple[GraphPrior, Evidence]]:
    log_lik = random_log_lik(num_clients)
    return [
        (mmsbm(num_clients, 3), evidence_of(log_lik)),
        (attention(num_clients), attending(log_lik)),
        (mixing(num_clients, learn=True), mixed_evidence(log_lik)),
    ]


@pytest.mark.parametrize("num_clients", [1, 2])
def test_few_clients_are_finite(num_clients: int) -> None:
    for prior, evidence in every_prior(num_clients):
        found = NaturalGradient(sweeps=5)(Joint(prior, random_log_lik(num_clients)), evidence, {}, rng())
        graph = evidence.peers.dense(found.moments["Y"])
        assert bool(graph.isfinite().all())
        assert math.isfinite(found.elbo)
        if prior.kind == "rows" and num_clients == 2:
            close(graph.sum(1), torch.ones(2))


def test_the_state_of_a_prior_is_all_of_it() -> None:
    log_lik = random_log_lik(4)
    for (prior, evidence), (fresh, _) in zip(every_prior(4), every_prior(4), strict=True):
        NaturalGradient(sweeps=3)(Joint(prior, log_lik), evidence, {}, rng())
        again = []
        for each in (prior, fresh):
            fresh.load_state_dict(prior.state())
            guide = scattered(Joint(each, log_lik), evidence)
            again.append(MomentELBO().loss(Joint(each, log_lik), guide, evidence))
        assert again[0] == again[1]
