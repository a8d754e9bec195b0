"""What is looked at on every task: chance, marginals and references are those of the task."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from scool_ppl.em.em import EM
from scool_ppl.em.model import Schedule
from scool_ppl.look.evidence import Evidence
from scool_ppl.look.likelihoods import CrossLoss
from scool_ppl.look.peers import All
from scool_ppl.train.clients import Clients
from scool_ppl.zoo.load import load_model
from tests.helpers.tasks import clients, federation


def test_evidence_takes_chance_and_marginal_from_the_task() -> None:
    data = federation("vectors")
    whose = clients(data)
    em = EM(load_model("scool_sbm", 4), whose, Schedule(local_steps=1))
    turn = em.round_start(em.init())
    evidence = Evidence(turn, em.init().params, All()(turn))
    assert float(evidence.chance) == pytest.approx(data.task.chance)
    own = torch.stack([data.targets[rows].double().var(0, unbiased=False).sum() for rows in data.train])
    torch.testing.assert_close(
        evidence.label_entropy, 3 * math.log(0.7 * math.sqrt(2 * math.pi)) + own / (2 * 0.7**2), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("reference", ["midpoint", "uniform", "marginal", "none"])
@pytest.mark.parametrize("name", ["sine", "text"])
def test_references_of_cross_loss(name: str, reference: Any) -> None:
    data = federation(name, **({"clients": 4, "train": 12} if name == "text" else {"clients": 6}))
    whose = Clients(data, executor="stacked")
    em = EM(load_model("scool_sbm", data.num_clients), whose, Schedule(warmup_epochs=40))
    state = em.init()
    turn = em.round_start(state)
    evidence = Evidence(turn, em.train(state, turn).trained.params, All()(turn))
    likelihood = CrossLoss(reference=reference)
    found, best = likelihood.reference_loss(evidence), likelihood._best(evidence)
    assert best < evidence.chance  # who trained on similar data knows something
    top = evidence.label_entropy if reference == "marginal" else evidence.chance.expand(data.num_clients)
    expected = {"none": torch.zeros_like(top), "uniform": top}.get(reference, (torch.minimum(best, top) + top) / 2)
    torch.testing.assert_close(found, expected)
    log_lik = likelihood(evidence)
    assert log_lik.isfinite().all()
    off = ~torch.eye(data.num_clients, dtype=torch.bool)
    if name == "text" and reference in ("midpoint", "uniform"):
        assert data.truth is not None
        # Whoever speaks the same language is better evidence than the best who does not.
        assert log_lik[off & (data.truth > 0)].min() > log_lik[off & (data.truth == 0)].max()
