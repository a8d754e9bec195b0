"""ShardedClients: what they answer beside clients in one process, what they refuse, and every model over two ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scool_ppl.em.em import EM
from scool_ppl.errors import ClientError
from scool_ppl.far import Ranks, ShardedClients
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.stacks import is_shared, shared, unshared
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import AnyClients, Coupling, Plan, Pull, Shares
from scool_ppl.train.privacy.promise import Privacy
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
)
from scool_ppl.zoo.load import load_model, model_names
from tests.helpers.models import FEDERATION
from tests.helpers.pages import ROOT
from tests.helpers.programs import run_torchrun
from tests.helpers.refusals import refuses
from tests.helpers.shared import only_rank
from tests.helpers.small import federation, normal
from tests.helpers.unequal import ADAM, SGD

TABLE = Peers(
    torch.tensor([[True, True], [True, False], [False, False], [True, True]]),
    torch.tensor([[1, 3], [2, 0], [0, 1], [1, 2]]),
)
SIZES = [(6, 5, 4), (13, 1, 0), (7, 3, 2), (9, 2, 6)]
PAGE = ROOT / "docs" / "torchrun.md"


def here(executor: str = "stacked", **options: Any) -> Clients:
    return Clients(federation(4, SIZES), executor=executor, dtype=torch.float64, probe_size=6, **options)


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    with only_rank() as found:
        yield found


def networks(clients: Clients, seed: int = 5) -> Params:
    return {name: value + 0.4 * normal(*value.shape, seed=seed) for name, value in clients.init(0).items()}


def cut(params: Params, mesh: Any) -> Params:
    return {name: shared(value, len(value), mesh) for name, value in params.items()}


def close(found: Tensor, expected: Tensor, what: str = "") -> None:
    assert not is_shared(found)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12, equal_nan=True, msg=lambda text: f"{what}: {text}")


@pytest.mark.filterwarnings("ignore:a client has")
@pytest.mark.parametrize("peers", [Peers.everybody(4), TABLE])
def test_questions_are_answered_as_in_one_process(mesh: Any, peers: Peers) -> None:
    clients = here()
    theta, there = networks(clients), ShardedClients(clients, Ranks(0, 1))
    assert isinstance(there, AnyClients)
    present = torch.tensor([True, False, True, True])

    def questions(stack: Params) -> dict[str, Question]:
        return {
            "receiver": PairLoss(stack, peers),
            "sender": PairLoss(stack, peers, "sender", "validation"),
            "images": ImageLoss(stack, peers),
            "calibrated": ImageLoss(stack, peers, "validation", calibrated=True),
            "own": OwnLoss(stack, "validation", present),
            "entropy": LabelEntropy(present),
            "predicted": PredictionLoss(Predictor(stack), "test", normal(4, 3)),
        }

    found = there.answer(questions(cut(theta, mesh)), seed=3, round=2)
    expected = clients.answer(questions(theta), seed=3, round=2)
    for name, value in expected.items():
        close(found[name], value, name)
    other = networks(clients, 9)
    weights, offsets = torch.rand(4, 2), normal(4, 3)
    mine = Ensemble((Predictor(cut(theta, mesh)), Predictor(cut(other, mesh))), weights, offsets)
    theirs = Ensemble((Predictor(theta), Predictor(other)), weights, offsets)
    for one, two in ((cut(theta, mesh), theta), (mine, theirs)):
        for mark, truth in zip(there.evaluate(one), clients.evaluate(two), strict=True):
            torch.testing.assert_close(mark, truth, rtol=0, atol=1e-12, equal_nan=True)
        (outputs, mask), (told, known) = there.predict(one), clients.predict(two)
        assert torch.equal(mask, known)
        close(outputs[mask], told[known])


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["momentum", "adam"])
def test_training_with_a_pull_and_absences_is_that_of_one_process(mesh: Any, optimizer: Any) -> None:
    clients = here("loop", optimizer=optimizer)
    there, theta = ShardedClients(clients, Ranks(0, 1)), networks(clients)
    centre, strength = networks(clients, 8), torch.tensor([0.1, 0.0, 0.4, 0.2], dtype=torch.float64)
    one, two = (cut(theta, mesh), {}), (theta, {})
    for round in range(3):
        plan = Plan(1, seed=2, round=round, absent=(1, 2) if round < 2 else (0,))
        mine = there.train(*one, plan._replace(pull=Pull(cut(centre, mesh), strength)))
        theirs = clients.train(*two, plan._replace(pull=Pull(centre, strength)))
        for found, expected in ((mine.params, theirs.params), (mine.optimizer_state, theirs.optimizer_state)):
            assert found.keys() == expected.keys()
            assert all(torch.equal(unshared(found[name]), value) for name, value in expected.items())
        close(mine.loss, theirs.loss)
        assert torch.equal(mine.moved, theirs.moved)
        one, two = (mine.params, mine.optimizer_state), (theirs.params, theirs.optimizer_state)


def test_what_needs_all_networks_at_once_is_one_line(mesh: Any) -> None:
    clients = here()
    there, theta = ShardedClients(clients, Ranks(0, 1)), cut(networks(clients), mesh)
    everybody, weights = Peers.everybody(4), torch.rand(4, 4, dtype=torch.float64)
    mixture = Predictor(theta, (weights, everybody))
    leaves = {name: value.requires_grad_() for name, value in networks(clients).items()}
    for call, words in (
        (lambda: there.train(theta, {}, Plan(pull=Coupling(weights, everybody))), "at every step"),
        (lambda: there.train(theta, {}, Plan(shares=Shares(weights, weights[0]))), "at every step"),
        (lambda: there.answer({"a": Alignment(theta, everybody)}, seed=0, round=0), "looks at gradients"),
        (lambda: there.answer({"a": OwnLoss(leaves)}, seed=0, round=0), "looks at gradients"),
        (lambda: there.answer({"a": PredictionLoss(mixture)}, seed=0, round=0), "predicts with mixtures"),
        (lambda: there.evaluations([mixture]), "predicts with mixtures"),
        (lambda: there.for_federation(clients.federation), "use one process"),
        (lambda: ShardedClients(clients, Ranks(0, 3)), "one would have none; use --nproc-per-node 2"),
    ):
        refuses(call, words.replace("one would", "1 would"))
    for private in (here(privacy=Privacy(0.0, 1.0)), here(private=["1.bias"])):
        refuses(
            lambda private=private: ShardedClients(private, Ranks(0, 1)), "expected none that are; leave --shard out"
        )
    there.host.verbs.pop("losses")
    with pytest.raises(ClientError) as caught:
        there.answer({"a": PairLoss(theta, everybody)}, seed=0, round=0)
    assert set(caught.value.reasons) == set(there.names)


def rows() -> dict[str, str]:
    """What the page says of each model."""
    return dict(re.findall(r"^\| `(\w+)` \| (yes|no)", PAGE.read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("model", model_names())
def test_a_model_is_refused_before_anything_is_trained(mesh: Any, model: str) -> None:
    """Those that the page says are, by what they declare, when they meet the clients."""
    there = ShardedClients(Clients(FEDERATION, executor="stacked"), Ranks(0, 1))
    built = load_model(model, FEDERATION.num_clients, federation=FEDERATION)
    if rows()[model] == "yes":
        assert EM(built, there).clients is not None
    else:
        refuses(lambda: EM(built, there), "leave --shard out, or choose another model")


def agrees(models: list[str], folder: Path) -> None:
    """As the page says: to 1e-12 of one process, or refused in one line."""
    program = str(ROOT / "tests" / "helpers" / "ranked.py")
    arguments = ["--standalone", "--nproc-per-node", "2", program, "shard", str(folder / "found.json"), *models]
    assert run_torchrun(arguments, folder) == 0
    found = json.loads((folder / "found.json").read_text())
    assert set(found.pop("raised")) == {"client 4"}
    assert found.keys() == set(models)
    for model, gap in found.items():
        if rows()[model] == "yes":
            assert gap < 1e-12, model
        else:
            assert "choose another model" in gap
            assert "\n" not in gap


@pytest.mark.nightly
def test_every_model_does_what_the_page_says(tmp_path: Path) -> None:
    assert set(rows()) == set(model_names())
    agrees(model_names(), tmp_path)
