"""Settings: what cannot be run is refused, and the clients and models that are made of them are as asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from scool_ppl import CooperationModel, Federation, InputError, load_federation, mixing
from scool_ppl.deploy import Portfolio, Rule, Single, Stack
from scool_ppl.em.model import Schedule
from scool_ppl.infer.estep.natural import NaturalGradient
from scool_ppl.infer.estep.svi import SVIStep
from scool_ppl.train.clients import Clients
from scool_ppl.train.networks import network_of
from scool_ppl.workbench.settings import Settings
from scool_ppl.zoo.load import model_names, model_path
from tests.helpers.results import SPEC


@pytest.fixture(scope="module")
def federation() -> Federation:
    return load_federation(SPEC)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rounds": 0}, "^rounds=0, expected at least 1$"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"learning_rate": float("inf")}, "learning_rate=inf, expected a positive number"),
        ({"momentum": float("nan")}, "momentum=nan, expected a number from 0 to below 1"),
        ({"momentum": 1.0}, "momentum=1.0, expected a number from 0 to below 1"),
        ({"weight_decay": float("inf")}, "weight_decay=inf, expected a finite number of at least 0"),
        ({"weight_decay": -1.0}, "weight_decay=-1.0, expected a finite number of at least 0"),
        ({"optimizer": "addam"}, "did you mean 'adam'"),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum=0.9 was given for adam, expected it for sgd"),
        ({"class_weights": "equal"}, "unknown class weights 'equal'; known: balanced"),
        ({"dp_noise": 1.0}, "dp_noise=1.0 was given without dp_clip, expected both"),
        ({"dp_clip": 1.0}, "dp_clip=1.0 was given without dp_noise, expected both"),
        ({"dp_delta": 1e-3}, "dp_delta=0.001 was given for training without noise"),
        ({"dp_evidence_noise": 1.0}, "dp_evidence_noise=1.0 was given for training without noise"),
        ({"dp_noise": 0.0, "dp_clip": 1.0, "dp_evidence_clip": 1.0}, "was given without evidence_noise, expected both"),
        ({"dp_noise": -1.0, "dp_clip": 1.0}, "noise=-1.0, expected a number of at least 0"),
        ({"e_step": "natrual"}, "did you mean 'natural'"),
        ({"deploy": "stak"}, "unknown deploy 'stak'; known: single, stack; did you mean 'stack'"),
        ({"device": "gpu"}, "unknown device 'gpu'; known: cpu, cuda"),
        ({"device": "cuda:7"} if not torch.cuda.is_available() else {"device": "tpu"}, "device"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_settings_refuse_what_cannot_be_run(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Settings(**change)


def test_the_optimiser_is_sgd_as_asked(federation: Federation) -> None:
    """Two steps by hand: v = 0.5 v + g + 0.25 w, w = w - 0.125 v."""
    clients = Settings(learning_rate=0.125, momentum=0.5, weight_decay=0.25).clients(federation)
    weight = torch.tensor([1.0], requires_grad=True)
    optimizer = clients.optimizer([weight])
    expected, velocity = 1.0, 0.0
    for gradient in (2.0, -1.0):
        weight.grad = torch.tensor([gradient])
        optimizer.step()
        velocity = 0.5 * velocity + gradient + 0.25 * expected
        expected -= 0.125 * velocity
    assert float(weight.detach()) == expected


def test_a_model_that_mixes_at_every_step_is_told_the_rate_of_plain_sgd(federation: Federation) -> None:
    """The pull that makes a step of the rate a mixing step is one over the rate; other optimisers have none such."""
    assert Settings(learning_rate=0.05).model("dpsgd", federation, mix="before").mixing == mixing.Pull(20.0)
    for other in (Settings(momentum=0.5), Settings(optimizer="adam")):
        assert other.model("dpsgd", federation).mixing == mixing.MixModels()
        with pytest.raises(InputError, match=r"step of plain SGD, expected .*; take sgd without momentum"):
            other.model("dpsgd", federation, mix="before")


@pytest.mark.parametrize(("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_other_optimisers_have_a_rate_of_their_own(name: str, kind: type, federation: Federation) -> None:
    asked = Settings(optimizer=name)
    made = asked.clients(federation).optimizer([torch.zeros(1, requires_grad=True)])
    assert type(made) is kind
    assert (made.defaults["lr"], made.defaults["weight_decay"]) == (1e-3, asked.weight_decay)
    assert replace(asked, learning_rate=0.25).rate == 0.25
    assert replace(Settings(), optimizer=name).rate == 1e-3


def test_balanced_classes_are_those_of_all_clients_together(federation: Federation) -> None:
    task = Settings(class_weights="balanced").clients(federation).federation.task
    counts = torch.stack(
        [torch.bincount(federation.labels(i, rows), minlength=10) for i, rows in enumerate(federation.train)]
    )
    parts = torch.tensor(task.weights) * counts.sum(0)
    torch.testing.assert_close(parts, torch.full_like(parts, float(counts.sum()) / 10))


def test_clients_have_the_batches_executor_and_network_that_were_asked_for(federation: Federation) -> None:
    clients = Settings(batch_size=7, executor="loop", network="mlp").clients(federation)
    assert (clients.batch_size, clients.executor_name, str(clients.device)) == (7, "loop", "cpu")
    shapes = {name: value.shape[1:] for name, value in clients.init(0).items()}
    assert shapes == {name: value.shape for name, value in network_of(federation, "mlp")().named_parameters()}


def test_the_defaults_are_those_of_clients_and_schedule(federation: Federation) -> None:
    """The library and the command line train alike."""
    ours, theirs = Settings().clients(federation), Clients(federation)
    assert (ours.batch_size, ours.executor_name, ours.device) == (
        theirs.batch_size,
        theirs.executor_name,
        theirs.device,
    )
    own, known = (made.optimizer([torch.zeros(1, requires_grad=True)]).defaults for made in (ours, theirs))
    assert own == known
    assert Settings().schedule == Schedule()
    assert Settings(local_epochs=2, warmup_epochs=3, local_steps=4).schedule == Schedule(2, 3, 4)


def test_the_e_step_of_a_model_stays_where_none_was_asked_for(federation: Federation) -> None:
    own = Settings().model("scool_sbm", federation).e_step
    assert isinstance(own, NaturalGradient)
    assert Settings(e_step="natural").model("scool_sbm", federation).e_step == own, "not one with other options"
    assert isinstance(Settings(e_step="svi").model("scool_sbm", federation).e_step, SVIStep)


def test_hyperparameters_reach_the_model(federation: Federation) -> None:
    shapes = [Settings().model("scool_sbm", federation, blocks=blocks).prior.B.shape for blocks in (2, 3)]
    assert shapes == [(2, 2), (3, 3)]


PLAIN = [name for name in model_names() if name not in ("local", "hedge")]


@pytest.mark.parametrize(("deploy", "rule"), [("stack", Stack()), ("single", Single())], ids=["stack", "single"])
@pytest.mark.parametrize("name", PLAIN)
def test_what_is_deployed_is_chosen_between_any_model_and_local_training(
    name: str, deploy: str, rule: Rule, federation: Federation
) -> None:
    made, plain = (Settings(deploy=each).model(name, federation) for each in (deploy, None))
    local = Settings().model("local", federation)
    assert isinstance(made, Portfolio)
    assert isinstance(plain, CooperationModel)
    assert (list(made.tracks), made.shown, made.rule) == (["local", name], name, rule)
    for track, model in (("local", local), (name, plain)):
        parts = [[type(part).__name__ for part in each] for each in (made.tracks[track], model)]
        assert parts[0] == parts[1]
    assert not made.tracks["local"].needs


def test_local_training_alone_has_nothing_to_choose_from(federation: Federation) -> None:
    assert isinstance(Settings(deploy="stack").model("local", federation), CooperationModel)


def test_a_file_of_yours_may_be_called_local(federation: Federation, tmp_path: Path) -> None:
    (tmp_path / "local.py").write_text(model_path("ring").read_text())
    made = Settings(deploy="stack").model(tmp_path / "local.py", federation)
    assert (list(made.tracks), made.shown) == (["local", "model"], "model")
    assert type(made.tracks["model"].prior).__name__ == "Ring"
    assert list(Settings(deploy="stack").model(model_path("ring"), federation).tracks) == ["local", "ring"]


def test_a_portfolio_keeps_its_tracks_and_its_rule_where_none_was_asked_for(federation: Federation) -> None:
    own = Settings().model("hedge", federation, reliance=7.0)
    assert (list(own.tracks), own.shown, own.rule) == (["local", "blocks", "everybody"], "blocks", Stack(7.0))
    assert Settings(deploy="stack").model("hedge", federation, reliance=7.0).rule == Stack(7.0), "it stacks already"
    other = Settings(deploy="single").model("hedge", federation)
    assert (list(other.tracks), other.shown, other.rule) == (["local", "blocks", "everybody"], "blocks", Single())


def test_the_e_step_is_that_of_every_track(federation: Federation) -> None:
    made = Settings(deploy="stack", e_step="svi").model("scool_sbm", federation)
    assert [type(model.e_step) for model in made.tracks.values()] == [SVIStep, SVIStep]


@pytest.mark.parametrize("model", ["blocks", "hedge"])
@pytest.mark.parametrize("e_step", ["natural", "svi"])
def test_an_e_step_that_cannot_infer_a_program_is_refused(model: str, e_step: str, federation: Federation) -> None:
    with pytest.raises(InputError, match="Partition is not linear in its moments"):
        Settings(e_step=e_step).model(model, federation)


def test_parts_are_patterns_between_commas() -> None:
    federation = load_federation("digits")
    parts = Settings(frozen="1.bias", private="3.bias, 3.w*").clients(federation).parts
    assert parts == (("1.bias",), ("3.weight", "3.bias"))
    with pytest.raises(InputError, match="private has 'heads', which no parameter matches; the closest are"):
        Settings(private="heads").clients(federation)
    assert Settings(frozen="body").clients(federation).parts.frozen == ("1.weight", "1.bias")
