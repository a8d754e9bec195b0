"""Asking: every question, of clients elsewhere and of the same in one process."""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from scool_ppl.data.federation import Federation
from scool_ppl.far import asking
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.clients import Clients
from scool_ppl.train.questions import (
    Alignment,
    Ensemble,
    ImageLoss,
    LabelEntropy,
    OwnLoss,
    PairLoss,
    Params,
    PredictionLoss,
    Predictor,
    Question,
    Whose,
)
from tests.helpers.far import remote
from tests.helpers.refusals import refuses
from tests.helpers.small import federation, normal
from tests.helpers.tasks import federation as of_task

SIZES = [(6, 5, 4), (13, 1, 0), (7, 3, 2), (9, 2, 6)]
WHOSE: tuple[Whose, ...] = get_args(Whose)
PRESENT = torch.tensor([True, False, True, True])
TABLE = Peers(
    torch.tensor([[True, True], [True, False], [False, False], [True, True]]),
    torch.tensor([[1, 3], [2, 0], [0, 1], [1, 2]]),
)


def here(data: Federation | None = None, **options: Any) -> Clients:
    data = federation(4, SIZES) if data is None else data
    return Clients(data, executor="stacked", dtype=torch.float64, probe_size=6, **options)


def networks(clients: Clients, seed: int = 5) -> Params:
    return {name: value + 0.4 * normal(*value.shape, seed=seed) for name, value in clients.init(0).items()}


def close(found: Tensor, expected: Tensor, what: str = "") -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12, equal_nan=True, msg=lambda text: f"{what}: {text}")


def compare(clients: Clients, questions: dict[str, Question]) -> None:
    for parts in ([[0], [1], [2], [3]], [[0, 1, 2], [3]]):
        found = remote(clients, parts).answer(questions, seed=3, round=2)
        expected = clients.answer(questions, seed=3, round=2)
        assert list(found) == list(questions)
        for name, value in expected.items():
            assert found[name].dtype == value.dtype, name
            close(found[name], value, name)


@pytest.mark.filterwarnings("ignore:a client has")
@pytest.mark.parametrize("peers", [Peers.everybody(4), Peers.everybody(4, True).among(PRESENT), TABLE])
def test_questions_about_pairs_are_answered_as_in_one_process(peers: Peers) -> None:
    clients = here()
    theta = networks(clients)
    cases: list[tuple[Whose, str]] = [(whose, split) for whose in WHOSE for split in ("train", "validation")]
    pairs: dict[str, Question] = {f"{whose} {split}": PairLoss(theta, peers, whose, split) for whose, split in cases}
    images: dict[str, Question] = {
        "images": ImageLoss(theta, peers),
        "calibrated": ImageLoss(theta, peers, calibrated=True),
        "held out": ImageLoss(theta, peers, "validation", calibrated=True),
    }
    compare(clients, {**pairs, **images, "aligned": Alignment(theta, peers)})


@pytest.mark.filterwarnings("ignore:a client has")
def test_questions_about_one_client_are_answered_as_in_one_process() -> None:
    clients = here()
    theta, other = networks(clients), networks(clients, 9)
    weights = torch.tensor([[0.3, 0.7], [1.0, 0.0], [0.5, 0.5], [0.0, 1e-3]])
    mixture = Predictor(theta, (weights, TABLE))
    compare(
        clients,
        {
            "own": OwnLoss(theta),
            "of some": OwnLoss(theta, "validation", PRESENT),
            "entropy": LabelEntropy(),
            "entropy of some": LabelEntropy(PRESENT),
            "predicted": PredictionLoss(Predictor(theta), "validation"),
            "mixed": PredictionLoss(mixture, "test", normal(4, 3)),
        },
    )
    there = remote(clients, [[0, 1], [2, 3]])
    with_seats = {name: torch.cat([value, other[name][:2]]) for name, value in theta.items()}
    seated = Predictor(with_seats, (torch.rand(4, 2).double(), Peers.of_components(4, 2)))
    ensemble = Ensemble((Predictor(theta), mixture, seated, Predictor(other)), torch.rand(4, 4), normal(4, 3))
    for predictor in (theta, ensemble):
        found, expected = there.evaluate(predictor), clients.evaluate(predictor)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12, equal_nan=True)
        (outputs, mask), (told, known) = there.predict(predictor), clients.predict(predictor)
        assert torch.equal(mask, known)
        torch.testing.assert_close(outputs[mask], told[known], rtol=0, atol=1e-12)
    mixed, plain = there.evaluations((mixture, Predictor(other)), "validation")
    told = clients.evaluate(theta, "validation", mixture.mixture), clients.evaluate(other, "validation")
    for found, expected in zip((mixed, plain), told, strict=True):
        close(torch.stack(list(found)), torch.stack(list(expected)))


@pytest.mark.parametrize("name", ["sine", "text"])
def test_other_tasks_are_asked_alike(name: str) -> None:
    clients, everybody = here(of_task(name)), Peers.everybody(4)
    theta = networks(clients)
    compare(
        clients, {"images": ImageLoss(theta, everybody), "entropy": LabelEntropy(), "loss": PairLoss(theta, everybody)}
    )


def test_gradients_of_a_clients_own_loss_come_with_it() -> None:
    clients = here()
    for whose in (clients, remote(clients)):
        theta = {name: value.requires_grad_() for name, value in networks(clients).items()}
        found = whose.answer({"own": OwnLoss(theta, "train", PRESENT)}, seed=1, round=0)["own"]
        gradient = torch.autograd.grad((found * torch.arange(1.0, 5)).sum(), list(theta.values()))
        if whose is clients:
            expected: tuple[Tensor, tuple[Tensor, ...]] = found.detach(), gradient
    torch.testing.assert_close(found.detach(), expected[0], rtol=0, atol=1e-12)
    for mine, theirs in zip(gradient, expected[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


def test_gradients_of_many_pairs_are_asked_for_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = here()
    there, question = remote(clients), Alignment(networks(clients), Peers.everybody(4))
    whole = there.answer({"aligned": question}, seed=1, round=0)["aligned"]
    trips = there.fabric.trips  # type: ignore[attr-defined]
    monkeypatch.setattr(asking, "AT_ONCE", 1)
    torch.testing.assert_close(there.answer({"aligned": question}, seed=1, round=0)["aligned"], whole)
    assert there.fabric.trips - trips == 6, "one for each pair"  # type: ignore[attr-defined]


def test_who_has_no_such_images_is_not_asked_and_refused_as_in_one_process() -> None:
    bare, everybody = here(federation(4, [(6, 0, 4)] * 4)), Peers.everybody(4)
    theta = networks(bare)
    asked: list[Question] = [OwnLoss(theta, "validation"), PairLoss(theta, everybody, "receiver", "validation")]
    for whose in (bare, remote(bare)):
        for question in [*asked, Alignment(theta, everybody, "validation")]:
            refuses(partial(whose.answer, {"a": question}, seed=0, round=0), "no validation images of")
    found = remote(bare).answer({"a": PredictionLoss(Predictor(theta))}, seed=0, round=0)["a"]
    assert found.shape == (4, 0, 1)
