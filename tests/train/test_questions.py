"""The questions of a round: what clients answer to each is what is written at it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.batches import Probe
from scool_ppl.train.clients import Clients
from scool_ppl.train.questions import (
    Ensemble,
    ImageLoss,
    LabelEntropy,
    OwnLoss,
    PairLoss,
    Params,
    PredictionLoss,
    Predictor,
    check_whose,
)
from tests.helpers.small import clients, close, data, loss, networks, one, outputs

K = 4
TABLE = Peers(
    torch.tensor([[True, True], [True, False], [True, True], [True, True]]),
    torch.tensor([[1, 3], [2, 0], [3, 0], [1, 2]]),
)
SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def whose() -> Clients:
    """All images of a client are in its probe."""
    return clients(K)


@pytest.fixture(scope="module")
def params(whose: Clients) -> Params:
    return networks(whose)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("peers", [Peers.everybody(K), TABLE], ids=["everybody", "table"])
def test_a_pairs_loss_is_of_the_receivers_or_of_the_senders_network(
    whose: Clients, params: Params, peers: Peers, split: str
) -> None:
    questions = {side: PairLoss(params, peers, side, split) for side in ("receiver", "sender")}  # type: ignore[arg-type]
    found = whose.answer(questions, seed=0, round=0)
    senders = peers.columns().expand_as(peers.mask)
    for i, m in peers.mask.nonzero().tolist():
        j = int(senders[i, m])
        close(found["receiver"][i, m], loss(one(params, i), whose, j, split))
        close(found["sender"][i, m], loss(one(params, j), whose, i, split))
    assert all(value.shape == peers.mask.shape and value[~peers.mask].eq(0).all() for value in found.values())


@pytest.mark.parametrize("split", SPLITS)
def test_a_clients_own_loss_is_of_its_own_data_and_can_be_derived(whose: Clients, params: Params, split: str) -> None:
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    found = whose.answer({"own": OwnLoss(leaves, split)}, seed=0, round=0)["own"]
    for i in range(K):
        close(found[i], loss(one(params, i), whose, i, split))
    (slope,) = torch.autograd.grad(found[1], [leaves["3.bias"]])
    assert slope[1].ne(0).any()
    assert slope[[0, 2, 3]].eq(0).all()


def test_the_entropy_of_labels_is_of_the_training_labels(whose: Clients) -> None:
    found = whose.answer({"entropy": LabelEntropy()}, seed=0, round=0)["entropy"]
    share = whose.federation.label_counts("train").double()
    share = share / share.sum(1, keepdim=True)
    expected = -(share * share.clamp(min=1e-300).log()).sum(1)
    close(found, expected)
    assert len(expected.round(decimals=6).unique()) > 1


def test_all_questions_of_a_round_are_answered_on_the_same_probes(
    whose: Clients, params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = clients(K, probe_size=3)
    drawn: list[str] = []
    probe = few.probe

    def counted(seed: int, round: int, split: str = "train") -> Probe:
        drawn.append(split)
        return probe(seed, round, split)

    monkeypatch.setattr(few, "probe", counted)
    itself = Peers.everybody(K, includes_self=True)
    questions: dict[str, Any] = {
        "own": OwnLoss(params),
        "pairs": PairLoss(params, itself),
        "test": OwnLoss(params, "test"),
    }
    found = few.answer(questions, seed=0, round=5)
    assert drawn == ["test", "train"]
    close(found["pairs"].diagonal(), found["own"])
    assert torch.equal(few.answer(questions, seed=0, round=5)["own"], found["own"])
    assert not torch.equal(few.answer(questions, seed=0, round=6)["own"], found["own"])
    assert not torch.equal(found["own"], whose.answer({"own": OwnLoss(params)}, seed=0, round=5)["own"])
    assert few.answer({}, seed=0, round=5) == {}


def test_validation_images_that_are_not_looked_at_are_said(params: Params) -> None:
    few, question = clients(K, probe_size=3), {"own": OwnLoss(params, "validation")}
    with pytest.warns(UserWarning, match=r"a client has 5 validation images, of which 3 .*probe_size=5\) looks at all"):
        few.answer(question, seed=0, round=0)
    clients(K, probe_size=5).answer(question, seed=0, round=0)


@pytest.mark.parametrize("whose_loss", ["send", "", "receivers"])
def test_whose_loss_it_is_must_be_said(whose_loss: str) -> None:
    with pytest.raises(InputError, match="known: receiver, sender"):
        check_whose(whose_loss)
    check_whose("receiver")
    check_whose("sender")


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("peers", [Peers.everybody(K), TABLE], ids=["everybody", "table"])
def test_losses_by_image_are_of_the_senders_network(whose: Clients, params: Params, peers: Peers, split: str) -> None:
    found = whose.answer({"images": ImageLoss(params, peers, split)}, seed=0, round=3)["images"]
    senders = peers.columns().expand_as(peers.mask)
    sizes = whose.federation.sizes(split).tolist()
    assert found.shape == (*peers.mask.shape, max(sizes), 1)
    for i, m in peers.mask.nonzero().tolist():
        x, y = data(whose, i, split)
        logits = outputs(one(params, int(senders[i, m])), x)
        close(found[i, m, : sizes[i], 0], -logits.log_softmax(1)[torch.arange(len(y)), y])
        assert found[i, m, sizes[i] :].isnan().all()
    assert found[~peers.mask].isnan().all()


def test_networks_are_calibrated_on_the_validation_images_of_who_trained_them(whose: Clients, params: Params) -> None:
    """The best of the same temperatures, found by hand; networks ten times too sure get a high one."""
    sure = {name: value * (10.0 if name.startswith("3") else 1.0) for name, value in params.items()}
    peers = Peers.everybody(K)
    for networks_, least in ((params, 1.0), (sure, 2.0)):
        found = whose.answer({"images": ImageLoss(networks_, peers, calibrated=True)}, seed=0, round=0)["images"]
        for j in range(K):
            x, y = data(whose, j, "validation")
            logits = outputs(one(networks_, j), x)
            grid = 2.0 ** torch.linspace(0, 4, 33, dtype=torch.float64)
            nll = [-(logits / t).log_softmax(1)[torch.arange(len(y)), y].sum() + t.log() ** 2 / 2 for t in grid]
            temperature = grid[int(torch.stack(nll).argmin())]
            assert temperature >= least
            i = (j + 1) % K
            x, y = data(whose, i)
            expected = -(outputs(one(networks_, j), x) / temperature).log_softmax(1)[torch.arange(len(y)), y]
            close(found[i, j, : len(y), 0], expected)


def test_probes_of_losses_by_image_are_the_same_in_all_rounds(params: Params) -> None:
    few = clients(K, probe_size=3)
    asked = {"images": ImageLoss(params, Peers.everybody(K))}
    first, later = (few.answer(asked, seed=0, round=round)["images"] for round in (0, 7))
    assert torch.equal(first.nan_to_num(-1), later.nan_to_num(-1))
    assert first.shape[2] == 3


def test_a_network_that_says_nothing_is_infinite_and_no_image_is_nan(whose: Clients, params: Params) -> None:
    broken = {name: value.clone() for name, value in params.items()}
    broken["3.bias"][1] = torch.nan
    found = whose.answer({"images": ImageLoss(broken, Peers.everybody(K))}, seed=0, round=0)["images"]
    sizes = whose.federation.sizes("train").tolist()
    assert found[0, 1, : sizes[0]].isinf().all()
    assert found[0, 1, sizes[0] :].isnan().all()


def probabilities(params: Params, client: int, x: Tensor, offsets: Tensor | None = None) -> Tensor:
    logits = outputs(one(params, client), x)
    return (logits if offsets is None else logits + offsets[client]).softmax(1)


def test_the_loss_of_a_prediction_is_of_a_network_or_of_a_mixture(whose: Clients, params: Params) -> None:
    weights = torch.tensor([[0.2, 0.8], [1.0, 5.0], [0.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    offsets = torch.tensor([[0.0, -2.0, 0.0]]).repeat(K, 1).double()
    asked = {
        "plain": PredictionLoss(Predictor(params), "train"),
        "mixed": PredictionLoss(Predictor(params, (weights, TABLE)), "validation", offsets),
    }
    found = whose.answer(asked, seed=0, round=0)
    for i in range(K):
        x, y = data(whose, i, "train")
        close(found["plain"][i, : len(y), 0], -probabilities(params, i, x)[torch.arange(len(y)), y].log())
        assert found["plain"][i, len(y) :].isnan().all()
        x, y = data(whose, i, "validation")
        share = weights[i] * TABLE.mask[i]
        each = [probabilities(params, int(j), x) for j in TABLE.senders[i]]  # type: ignore[index]
        mixed = sum(w * p for w, p in zip(share / share.sum().clamp(min=1e-30), each, strict=True))
        if share.sum() == 0:
            mixed = probabilities(params, i, x)
        expected = (mixed.log() + offsets[i]).softmax(1)
        close(found["mixed"][i, :, 0], -expected[torch.arange(len(y)), y].log(), atol=1e-8)


def test_an_ensemble_predicts_with_the_weighted_probabilities(whose: Clients, params: Params) -> None:
    other = networks(whose, seed=50)
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75], [0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    offsets = torch.tensor([[0.0, 0.0, -3.0]]).repeat(K, 1).double()
    ensemble = Ensemble((Predictor(params), Predictor(other)), weights, offsets)
    found, mask = whose.predict(ensemble, "test")
    evaluation = whose.evaluate(ensemble, "test")
    for i in range(K):
        x, y = data(whose, i, "test")
        p = weights[i, 0] * probabilities(params, i, x, offsets) + weights[i, 1] * probabilities(other, i, x, offsets)
        close(found[i, : len(y)].softmax(-1), p)
        close(evaluation.score[i], (p.argmax(1) == y).double().mean())
        close(evaluation.loss[i], -p[torch.arange(len(y)), y].log().mean())
    assert mask.sum(1).tolist() == whose.federation.sizes("test").tolist()
