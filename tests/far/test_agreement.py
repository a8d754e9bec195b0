"""Agreement: what clients say of themselves becomes a roster, or one line says who differs in what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from scool_ppl.data.federation import Federation
from scool_ppl.far import Description, Host, LocalFabric, RemoteClients
from scool_ppl.far.agreement import roster_of
from scool_ppl.tasks.categorical import Classification
from scool_ppl.train.clients import Clients
from tests.helpers.models import FEDERATION
from tests.helpers.refusals import refuses
from tests.helpers.small import normal
from tests.helpers.tasks import federation as of_task


def described(data: Federation, **options: Any) -> dict[str, Description]:
    return Host(Clients(data, executor="loop", **options)).describe()


def test_the_roster_is_that_of_all_of_them_in_one_place() -> None:
    found, expected = roster_of(described(FEDERATION)), FEDERATION.roster
    assert (found.names, found.task, found.input_shape, found.kind) == (
        expected.names, expected.task, expected.input_shape, expected.kind,
    )  # fmt: skip
    assert torch.equal(found.rows, expected.rows)
    assert torch.equal(found.counts, expected.counts)
    assert (found.groups, found.truth) == (None, None), "nobody has said so"


def test_a_variance_is_pooled_and_told_to_all() -> None:
    """Clients whose targets are far apart: each alone would explain another variance, and chance would be another."""
    x, y, owner = normal(40, 2), normal(40, seed=2) + 2 * (torch.arange(40) % 4), torch.arange(40) % 4
    whole = Federation.from_arrays(x, y, owner, task="regression", test=0.25, validation=0.0)
    alone = [
        Federation.from_arrays(
            whole.inputs[rows], whole.targets[rows], [0] * len(rows), names=[name], task="regression",
            split=[0] * len(train) + [2] * len(test),
        )
        for name, train, test in zip(whole.names, whole.train, whole.test, strict=True)
        for rows in [torch.cat([train, test])]
    ]  # fmt: skip
    assert len({each.task for each in alone}) == 4
    here = Clients(whole, executor="loop", dtype=torch.float64)
    there = RemoteClients(LocalFabric(*(Host(Clients(each, executor="loop", dtype=torch.float64)) for each in alone)))
    assert there.roster.task.variance == pytest.approx(whole.task.variance, rel=1e-6)  # type: ignore[attr-defined]
    assert there.roster.task.chance == pytest.approx(whole.task.chance, rel=1e-6)
    params = here.init(0)
    torch.testing.assert_close(there.evaluate(params).score, here.evaluate(params).score, rtol=1e-5, atol=1e-6)


def test_who_differs_is_named_with_what_to_do() -> None:
    first, second = FEDERATION.select([0]), FEDERATION.select([1])
    wide = Clients(second, lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)), executor="loop")
    for others, words in (
        (described(of_task("classes")), "client 0 has the kind classification of 10 outputs"),
        (Host(wide).describe(), "give all of them the same network"),
        (described(second, dtype=torch.float64), "has the dtype float32, client 1 float64"),
        (described(second, batch_size=3), "has the batch size 10, client 1 3"),
        (described(second, optimizer=torch.optim.SGD), "give all of them the same network, optimizer and batches"),
    ):
        known = {f"client 1{name[8:]}" if name == "client 0" else name: told for name, told in others.items()}
        refuses(lambda known=known: roster_of({**described(first), **known}), words)
    refuses(lambda: roster_of({}), "nobody has described itself")
    told = described(of_task("sine"))
    sharp = {name: each._replace(task="regression:sigma=0.1,variance=2.0") for name, each in list(told.items())[:1]}
    refuses(lambda: roster_of({**told, **sharp}), "expected one; give all of them the same")


@dataclass(frozen=True)
class Own(Classification):
    """A task of a user's own has no text."""


def test_a_task_of_ones_own_is_passed() -> None:
    data = Federation.from_arrays(normal(20, 3), [0, 1] * 10, [0] * 10 + [1] * 10, task=Own(2))
    fabric = LocalFabric(Host(Clients(data, executor="loop")))
    refuses(lambda: RemoteClients(fabric), "the task of client 0 is a class of its own, which cannot be told")
    there = RemoteClients(fabric, task=Own(2))
    assert there.roster.task == Own(2)
    assert there.evaluate(there.init(0)).score.isfinite().all()
