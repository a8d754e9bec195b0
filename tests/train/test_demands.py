"""Demands: what models declare is what they ask for, and who cannot do it says so before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from torch import Tensor, nn

from scool_ppl.em.em import EM
from scool_ppl.em.model import Schedule
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import AnyClients, Evaluation, Plan, Trained, Wrapper
from scool_ppl.train.demands import MEANING, Demand, check_demands
from scool_ppl.train.privacy.evidence import differentiable
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.train.questions import Alignment, OwnLoss, Params, PredictionLoss, Predictor, Question
from scool_ppl.zoo.load import load_model
from tests.helpers.far import remote
from tests.helpers.models import FEDERATION, K
from tests.helpers.refusals import refuses
from tests.helpers.small import brief


class Watched(Wrapper):
    """Clients who note what they are asked for."""

    def __init__(self, clients: AnyClients) -> None:
        super().__init__(clients)
        self.asked: set[Demand] = set()

    def train(self, params: Params, optimizer_state: Params | None, plan: Plan) -> Trained:
        self.asked |= plan.demands
        return super().train(params, optimizer_state, plan)

    def answer(self, questions: Mapping[str, Question], *, seed: int, round: int) -> dict[str, Tensor]:
        for question in questions.values():
            if isinstance(question, Alignment) or (isinstance(question, OwnLoss) and differentiable(question)):
                self.asked.add("gradients")
            if isinstance(question, PredictionLoss):
                self._predicted(question.predictor)
            elif networks := getattr(question, "networks", None):
                self._seen(networks)
        return super().answer(questions, seed=seed, round=round)

    def evaluations(self, predictors: Sequence[Predictor], split: str = "test") -> tuple[Evaluation, ...]:
        for each in predictors:
            self._predicted(each)
        return super().evaluations(predictors, split)

    def _predicted(self, predictor: Predictor) -> None:
        self._seen(predictor.networks)
        if predictor.mixture is not None:
            self.asked.add("mixtures")

    def _seen(self, networks: Params) -> None:
        if len(next(iter(networks.values()))) > self.num_clients:
            self.asked.add("components")


MODELS = ("cobo", "dada", "federico", "fedem", "ifca", "l2c", "local", "dpsgd")


@pytest.mark.parametrize("model", MODELS)
def test_a_model_declares_what_it_asks_of_clients(model: str) -> None:
    """Neither less nor more; that an encoder reads all networks is nothing that a client could see."""
    watched = Watched(Clients(FEDERATION, executor="stacked"))
    built = load_model(model, K, federation=FEDERATION)
    em = EM(brief(built), watched, Schedule(1, 1))
    em.fit(2, progress=False)
    declared = {demand for each in (em, *em.beside.values()) for demand in each.model.demands}
    assert watched.asked == declared - {"all networks"}


def test_a_refusal_says_what_the_model_does_why_it_cannot_be_and_what_to_do() -> None:
    refused: dict[Demand, str] = {"components": "which these cannot; try others"}
    check_demands(refused, ["lock step"])
    for demand in MEANING:
        check_demands({}, [demand])
    words = "this model has components, networks that belong to no client, which these cannot; try others, or choose"
    refuses(lambda: check_demands(refused, ["components", "lock step"]), words)
    refuses(lambda: check_demands({}, ["lockstep"]), "unknown demand 'lockstep'")


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(FEDERATION.inputs[0].numel(), 4), nn.Dropout(), nn.Linear(4, 10))


@pytest.mark.parametrize(
    ("clients", "models", "words"),
    [
        (lambda: Clients(FEDERATION, privacy=Privacy(0.0, 1.0)), ["federico", "fedem"], "train without noise"),
        (lambda: remote(Clients(FEDERATION, privacy=Privacy(0.0, 1.0))), ["fedem"], "train without noise"),
        (lambda: remote(Clients(FEDERATION, with_dropout)), ["cobo", "federico"], "take another network"),
        (lambda: remote(Clients(FEDERATION, private=["*bias"])), ["federico"], "declare nothing private"),
    ],
    ids=["private training", "private training elsewhere", "dropout elsewhere", "private parts elsewhere"],
)
def test_who_cannot_do_it_refuses_when_the_model_is_chosen(clients: Any, models: list[str], words: str) -> None:
    there = clients()
    assert EM(load_model("local", K), there).clients is there
    for model in models:
        refuses(lambda model=model: EM(load_model(model, K, federation=FEDERATION), there), words)
