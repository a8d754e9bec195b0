"""Tasks by name, and as texts."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from torch import Tensor

from scool_ppl.base.arrays import ArrayLike
from scool_ppl.base.options import parse_options
from scool_ppl.errors import InputError, unknown
from scool_ppl.tasks.base import Task
from scool_ppl.tasks.categorical import Classification, NextToken
from scool_ppl.tasks.regression import Regression

TASKS: dict[str, type[Classification] | type[Regression] | type[NextToken]] = {
    kind.name: kind for kind in (Classification, Regression, NextToken)
}

_PREDICTS = ("predictive", "from_predictive", "output_shape")


def read_task(task: Task | str, inputs: ArrayLike, targets: ArrayLike) -> tuple[Task, Tensor, Tensor]:
    """The task, inputs and targets as tensors; "name:option=value,..." takes what it does not say from the arrays."""
    if not isinstance(task, str):
        return task, *task.arrays(inputs, targets)
    kind, options = _parsed(task)
    x, y = kind.arrays(inputs, targets)
    return kind.of(x, y, **options), x, y


def task_of(text: str) -> Task:
    """The task of a text that says all of it, as that of `written` does."""
    kind, options = _parsed(text)
    missing = [field.name for field in fields(kind) if field.default is MISSING and field.name not in options]
    if missing:
        raise InputError(f"task '{text}' does not say its {missing[0]}; write {kind.name}:{missing[0]}=...")
    return kind(**options)


def _parsed(text: str) -> tuple[type[Classification] | type[Regression] | type[NextToken], dict[str, Any]]:
    name, _, pairs = text.partition(":")
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name], parse_options(f"option of task {name}", filter(None, pairs.split(",")), TASKS[name])


def plain(task: Task) -> Task | None:
    """The task of `TASKS` that predicts as this one does: itself, or the one of which it changes losses or scores only."""
    for kind in TASKS.values():
        if isinstance(task, kind) and all(getattr(type(task), name) is getattr(kind, name) for name in _PREDICTS):
            found: Task = kind(**{field.name: getattr(task, field.name) for field in fields(kind)})
            return found
    return None


def written(task: Task) -> str:
    """The text from which `read_task` and `task_of` make the task again."""
    if type(task) is not TASKS.get(task.name):
        raise InputError(
            f"task '{task.name}' has no text of its own, expected one of {', '.join(TASKS)}; keep it in code"
        )
    return f"{task.name}:" + ",".join(f"{field.name}={getattr(task, field.name)!r}" for field in fields(task))
