"""Roster: what a driver knows of clients, with nobody's data in it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from scool_ppl.data.reading import SPLITS
from scool_ppl.data.roster import Roster
from scool_ppl.data.specs import load_federation
from scool_ppl.em.em import EM
from scool_ppl.em.model import Schedule
from scool_ppl.errors import InputError
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Wrapper
from scool_ppl.zoo.load import load_model
from tests.helpers.refusals import refuses
from tests.helpers.tasks import federation as of_task


@pytest.mark.parametrize("name", ["sine", "vectors", "text", "classes"])
def test_a_roster_says_what_the_federation_says_of_its_clients(name: str) -> None:
    federation = of_task(name)
    roster = federation.roster
    for fact in ("names", "num_clients", "num_classes", "kind", "task", "groups", "truth", "preparation"):
        assert getattr(roster, fact) is getattr(federation, fact) or getattr(roster, fact) == getattr(federation, fact)
    for split in SPLITS:
        assert torch.equal(roster.sizes(split), federation.sizes(split))
        assert torch.equal(roster.label_counts(split), federation.label_counts(split))
    assert (roster.input_shape, roster.tokens) == (tuple(federation.inputs.shape[1:]), name == "text")


def test_a_roster_holds_no_rows_and_stays_small() -> None:
    """Of 400 clients with 192,000 images it takes as little as of the same clients with one each."""
    roster = load_federation("permuted:digits:clients=5,groups=2,train=30").roster
    held = [getattr(roster, field.name) for field in fields(roster)]
    assert sum(value.numel() for value in held if isinstance(value, torch.Tensor)) == 3 * 5 + 3 * 5 * 10 + 5 * 5
    many = Roster(
        tuple(f"client {i}" for i in range(400)), roster.task, (3, 64, 64), False,
        torch.full((3, 400), 480), torch.full((3, 400, 10), 48),
    )  # fmt: skip
    assert many.num_clients == 400
    assert int(many.sizes("test").sum()) == 192_000


def test_a_roster_that_does_not_fit_is_refused() -> None:
    roster = of_task("classes").roster
    refuses(lambda: replace(roster, names=("a", "a", "b", "c")), "expected different ones")
    refuses(lambda: replace(roster, rows=roster.rows[:2]), "rows of the roster have shape (2, 4), expected (3, 4)")
    refuses(lambda: roster.sizes("training"), "did you mean 'train'")


class Elsewhere(Wrapper):
    """Clients who say who they are and not what their data are."""

    @property
    def federation(self) -> Any:
        raise InputError("the data are elsewhere")


@pytest.mark.parametrize("model", ["scool_sbm", "hedge", "oracle", "federico"])
def test_a_fit_needs_the_roster_only(model: str) -> None:
    federation = load_federation("permuted:digits:clients=4,groups=2,train=20")
    here = Clients(federation, executor="stacked")
    fits = [
        EM(load_model(model, 4, federation=whose), clients, Schedule(1, 2), seed=1).fit(2, progress=False)
        for clients, whose in ((here, federation), (Elsewhere(here), federation.roster))
    ]
    assert torch.equal(fits[0].deployed.score, fits[1].deployed.score)
    assert fits[0].history[-1]["graph"] == fits[1].history[-1]["graph"]
