"""Tasks by name: read from texts and arrays, written as texts, and read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from scool_ppl.errors import InputError
from scool_ppl.tasks.base import Task
from scool_ppl.tasks.categorical import Classification, NextToken
from scool_ppl.tasks.named import TASKS, plain, read_task, task_of, written
from scool_ppl.tasks.regression import Regression
from tests.helpers.small import normal
from tests.helpers.tasks import integers


@dataclass(frozen=True)
class Laplace(Regression):
    """A user's own, which has no text."""

    name: ClassVar[str] = "laplace"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("classification", Classification(3)),
        ("classification:num_classes=5", Classification(5)),
        ("regression", Regression()),
        ("regression:sigma=0.5", Regression(0.5)),
        ("regression:sigma=0.5,variance=2", Regression(0.5, variance=2.0)),
        ("next-token", NextToken(3)),
        ("next-token:vocabulary=9", NextToken(9)),
    ],
)
def test_a_text_takes_from_the_arrays_what_it_does_not_say(text: str, expected: Task) -> None:
    tokens = torch.tensor([[0, 1], [2, 0]])
    arrays = (tokens, tokens) if text.startswith("next-token") else (normal(3, 2), [0, 2, 1])
    task, inputs, targets = read_task(text, *arrays)
    assert task == expected
    task.check(inputs, targets)


@pytest.mark.parametrize(
    "task",
    [
        Classification(7),
        Regression(0.1 + 0.2, 3, 1 / 3),
        NextToken(17),
    ],
)
def test_a_task_is_read_again_from_its_text(task: Task) -> None:
    arrays = (integers(2, 4, 3), integers(2, 4, 3)) if isinstance(task, NextToken) else (normal(4, 2), [0, 1, 0, 1])
    assert read_task(written(task), *arrays)[0] == task


def test_every_kind_has_the_name_it_is_found_by() -> None:
    assert {name: kind.name for name, kind in TASKS.items()} == {name: name for name in TASKS}


def test_a_task_itself_is_taken_as_it_is() -> None:
    mine = Laplace(2.0)
    task, inputs, targets = read_task(mine, normal(3, 2), [1, 2, 3])
    assert task is mine
    assert (inputs.dtype, targets.dtype) == (torch.float32, torch.float32)
    with pytest.raises(InputError, match="task 'laplace' has no text of its own, expected one of classification"):
        written(mine)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("regresion", "unknown task 'regresion'; known: .*did you mean 'regression'"),
        ("", "unknown task ''"),
        ("regression:sigm=1", "unknown option of task regression 'sigm'.*did you mean 'sigma'"),
        ("regression:sigma=x", "sigma is 'x', expected a number"),
        ("regression:sigma=0", "a positive sigma"),
        ("regression:sigma", "write name=value"),
    ],
)
def test_wrong_texts_are_one_line(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_task(text, normal(3, 2), normal(3))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "task", [Classification(3), Regression(0.7, 3, 2.5), NextToken(17)], ids=lambda task: task.name
)
def test_a_text_that_says_all_is_enough(task: Task) -> None:
    assert task_of(written(task)) == task
    assert plain(task) == task


def test_a_text_that_does_not_say_all_is_one_line() -> None:
    with pytest.raises(InputError, match=r"'classification' does not say its num_classes; write .*num_classes="):
        task_of("classification")
    with pytest.raises(InputError, match="unknown task"):
        task_of("clasification:num_classes=3")


def test_a_variant_predicts_as_the_task_that_it_varies() -> None:
    assert plain(Laplace(0.5, 2, 1.0)) == Regression(0.5, 2, 1.0)
