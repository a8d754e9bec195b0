"""Exchange: parts in one trip, answers to where they belong, faults by name, and what is not asked twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from scool_ppl.errors import ClientError, RunError
from scool_ppl.far import Answers, Description, Job, Reply, Request
from scool_ppl.far.exchange import Exchange, Part, got
from scool_ppl.far.wire import Build
from tests.helpers.refusals import refuses

NAMES = ("a", "b", "c")


@dataclass
class Echo:
    """Sends back what it was sent, but as `spoilt` says."""

    spoilt: Callable[[Answers], Answers] = lambda answers: answers
    asked: list[Mapping[str, Request]] = field(default_factory=list)
    near: bool = True
    bytes: int = 0

    def describe(self) -> dict[str, Description]:
        return {}

    def away(self, round: int) -> Mapping[str, str]:
        return {}

    def ask(self, names: Sequence[str], build: Build) -> Answers:
        requests = {name: build(name) for name in names}
        self.asked.append(requests)
        replies: dict[str, Reply] = {name: tuple(dict(job.tensors) for job in jobs) for name, jobs in requests.items()}
        return self.spoilt(Answers(replies, {}))


def part(
    values: Tensor, who: Sequence[bool] = (True, True, True), verb: str = "train"
) -> tuple[Part, dict[int, float]]:
    found: dict[int, float] = {}

    def take(i: int, told: Mapping[str, Tensor]) -> None:
        found[i] = float(got(told, "x", ()))

    return Part(torch.tensor(who), lambda i: Job(verb, {}, {"x": values[i]}), take), found


def test_parts_share_a_trip_and_nobody_is_asked_for_nothing() -> None:
    fabric = Echo()
    exchange = Exchange(fabric, NAMES)
    exchange.common["task"] = "it"
    (one, first), (two, second) = part(torch.arange(3.0)), part(torch.arange(3.0) + 10, (False, True, False))
    exchange([one, two])
    assert (first, second) == ({0: 0, 1: 1, 2: 2}, {1: 11})
    assert [len(jobs) for jobs in fabric.asked[0].values()] == [1, 2, 1]
    assert {job.options["task"] for jobs in fabric.asked[0].values() for job in jobs} == {"it"}
    exchange([part(torch.zeros(3), (False, False, False))[0]])
    assert len(fabric.asked) == 1


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        (lambda found: Answers({**found.replies, "b": ()}, {}), "it sent 0 answers to 1 questions"),
        (lambda found: Answers({**found.replies, "b": ({"x": torch.zeros(2)},)}, {}), "a x of shape (2,), expected ()"),
        (lambda found: Answers({**found.replies, "b": ({},)}, {}), "it sent no x"),
        (lambda found: Answers({name: found.replies[name] for name in "ac"}, {}), "no answer"),
        (lambda found: Answers({name: found.replies[name] for name in "ac"}, {"b": "out of disk"}), "out of disk"),
    ],
)
def test_who_answers_wrongly_is_named_and_the_others_are_heard(
    spoilt: Callable[[Answers], Answers], words: str
) -> None:
    exchange, (one, found) = Exchange(Echo(spoilt), NAMES), part(torch.arange(3.0))
    with pytest.raises(ClientError) as caught:
        exchange([one])
    assert list(caught.value.reasons) == ["b"]
    assert words in caught.value.reasons["b"]
    assert found == {0: 0, 2: 2}
    assert exchange.attempt([one]).keys() == {"b"}


def test_nobody_answers_for_another() -> None:
    exchange = Exchange(Echo(lambda found: Answers({**found.replies, "z": found.replies["a"]}, {})), NAMES)
    with pytest.raises(RunError, match="'z' answered a question that was not put to it"):
        exchange([part(torch.zeros(3))[0]])


def test_within_a_round_the_same_is_not_asked_twice() -> None:
    fabric = Echo()
    exchange = Exchange(fabric, NAMES)

    def asked(values: Tensor, round: int, verb: str = "train") -> str:
        before = len(fabric.asked)
        one, found = part(values, verb=verb)
        exchange([one], kept=round)
        assert found == dict(enumerate(values.tolist()))
        return "".join(name for requests in fabric.asked[before:] for name in requests)

    values = torch.arange(3.0)
    assert asked(values, 0) == "abc"
    assert asked(values.clone(), 0) == ""
    assert asked(values + torch.tensor([0, 1.0, 0]), 0) == "b"
    assert asked(values, 1) == "abc", "a round later it may be another answer"
    assert asked(values, 1, "other") == "abc"


def test_an_answer_has_the_shape_that_was_asked_for() -> None:
    told = {"x": torch.zeros(2, 5)}
    assert got(told, "x", (2, -1)) is told["x"]
    assert got(told, "x") is told["x"]
    refuses(lambda: got(told, "x", (2,)), "it sent a x of shape (2, 5), expected (2,)")
    refuses(lambda: got(told, "y"), "it sent no y")
