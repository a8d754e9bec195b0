"""Options of the training: they are the fields of Settings, in name, order, type, default and help."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Annotated, Any, get_type_hints

import pytest
import typer

from scool_ppl.cli.options import with_settings
from scool_ppl.em.model import Schedule
from scool_ppl.errors import InputError
from scool_ppl.workbench.settings import Settings
from tests.helpers.command import scool

FIELDS = {field.name: field for field in dataclasses.fields(Settings)}
# Not the defaults (but for the device, as not every machine has two), and all different: a swap would be seen.
OTHERS: dict[str, Any] = {
    "rounds": 3,
    "local_epochs": 2,
    "warmup_epochs": 7,
    "local_steps": 11,
    "optimizer": "sgd",  # the default, which alone has momentum
    "learning_rate": 0.25,
    "momentum": 0.5,
    "weight_decay": 0.125,
    "class_weights": "balanced",
    "batch_size": 13,
    "network": "mlp",
    "width": 0.75,
    "frozen": "0.*",
    "private": "3.*,4.*",
    "executor": "loop",
    "precision": "bf16",
    "dp_noise": 1.5,
    "dp_clip": 0.375,
    "dp_evidence_noise": 2.5,
    "dp_evidence_clip": 3.5,
    "dp_delta": 1e-4,
    "device": "cpu",
    "e_step": "svi",
    "deploy": "single",
    "seed": 17,
}


def called(*arguments: str) -> dict[str, Any]:
    """What a command of its own, with an option before the settings and one after them, is called with."""
    calls: list[dict[str, Any]] = []

    def command(
        before: Annotated[str, typer.Option(help="first")] = "b", *, settings: Settings, after: int = 1
    ) -> None:
        """Say nothing."""
        calls.append({"before": before, "settings": settings, "after": after})

    app = typer.Typer()
    app.command()(with_settings(command))
    app([*arguments], standalone_mode=False)
    (call,) = calls
    return call


def test_without_options_the_settings_are_the_defaults() -> None:
    assert called() == {"before": "b", "settings": Settings(), "after": 1}
    assert Settings().schedule == Schedule()


def test_every_option_reaches_its_field() -> None:
    assert set(OTHERS) == set(FIELDS)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in OTHERS.items()]
    assert called("--before=x", *words, "--after=5") == {"before": "x", "settings": Settings(**OTHERS), "after": 5}
    assert called("--optimizer=adamw")["settings"] == Settings(optimizer="adamw")


def test_settings_that_cannot_be_are_refused_before_the_command_runs() -> None:
    with pytest.raises(InputError, match="rounds=0"):
        called("--rounds=0")


def test_a_signature_as_if_every_option_had_been_written_out() -> None:
    def command(first: int = 0, *, settings: Settings, last: bool = False) -> None:
        """What it is for."""

    made = with_settings(command)
    parameters = inspect.signature(made).parameters
    assert list(parameters) == ["first", *FIELDS, "last"]
    assert {name: parameters[name].default for name in FIELDS} == dataclasses.asdict(Settings())
    assert list(get_type_hints(made)) == [*parameters, "return"]
    assert made.__doc__ == command.__doc__


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_help_has_the_settings_in_their_order_with_their_help_and_default(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = " ".join(scool(command, "--help").out.split())
    shown = re.sub(r"(?<=\w)- (?=\w)", "-", lines)  # a line may end at the hyphen of a word
    places = []
    for name, field in FIELDS.items():
        option = f"--{name.replace('_', '-')} <"
        assert shown.count(option) == 1, name
        places.append(shown.index(option))
        own = re.split(r" --[a-z]", shown[places[-1] :])[0]
        assert field.metadata["help"] in own
        assert (f"[default: {field.default}]" in own) == (field.default is not None)
    assert places == sorted(places)
