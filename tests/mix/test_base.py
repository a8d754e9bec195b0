"""What a mixing rule is when it says nothing: it adds nothing to training, and everybody keeps what was trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scool_ppl import EM, CooperationModel
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.priors.dirac import Dirac
from scool_ppl.look.likelihoods import Ignored
from scool_ppl.mix.after import MixUpdates
from scool_ppl.mix.base import Alone, Mixing, Terms
from scool_ppl.mix.components import CopyComponents, ServeComponents
from scool_ppl.train.contract import Plan
from scool_ppl.train.round_start import Remembered, RoundStart
from tests.helpers.small import ONE_STEP, clients, normal, uniform

K = 4


@pytest.mark.parametrize("rule", [Mixing(), Alone()])
def test_by_default_a_rule_takes_what_was_trained(rule: Mixing) -> None:
    before, trained = {"weight": normal(K, 3)}, {"weight": normal(K, 3, seed=1)}
    mixed = rule(before, trained, uniform(K, K), Peers.everybody(K))
    assert torch.equal(mixed["weight"], normal(K, 3, seed=1))
    assert rule.predictors(uniform(K, K), Peers.everybody(K)) is None


@pytest.mark.parametrize("rule", [Mixing(), Alone()])
def test_by_default_a_round_is_training_alone(rule: Mixing) -> None:
    em = EM(CooperationModel(Dirac(uniform(K, K)), Ignored(), rule), clients(K), ONE_STEP)
    state, _ = em.step(em.step(em.init())[0])
    whose = clients(K)
    once = whose.train(whose.init(0), None, Plan(steps=1)).params
    twice = whose.train(once, None, Plan(steps=1, round=1)).params
    for name, value in twice.items():
        torch.testing.assert_close(state.params[name], value, rtol=0, atol=1e-12)
        assert not torch.equal(value, once[name])


class Counting(Mixing):
    """Remembers how often it was asked, and reads it in the next round."""

    def during(self, start: RoundStart) -> Terms:
        last = start.recall("asked")
        return Terms(memory={"asked": Remembered(torch.tensor(1 if last is None else int(last) + 1), ())})


def test_what_a_rule_wants_remembered_is_there_in_the_next_round() -> None:
    em = EM(CooperationModel(Dirac(torch.zeros(K, K)), Ignored(), Counting()), clients(K), ONE_STEP)
    state = em.init()
    for round in (1, 2, 3):
        state, _ = em.step(state)
        assert int(state.memory["asked"].value) == round


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (torch.ones(5, 1), r"samples of shape \(5, 1\), expected \(K,\)"),
        (torch.tensor([3, 0, 4]), r"samples\[1\]=0, expected a number of images above 0; leave out"),
        (torch.tensor([3.0, 1.0, torch.inf]), r"samples\[2\]=inf"),
        ([3, 1, 4], "is a list, expected a Tensor; convert by torch.tensor"),
    ],
)
@pytest.mark.parametrize("rule", [MixUpdates, ServeComponents, CopyComponents])
def test_samples_are_a_positive_number_a_client(rule: Any, samples: Any, words: str) -> None:
    with pytest.raises(InputError, match=f"{rule.__name__} .*{words}"):
        rule(samples=samples)
