"""Tasks by name, and as texts."""

from __future__ import annotations

from dataclasses import fields
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


def read_task(task: Task | str, inputs: ArrayLike, targets: ArrayLike) -> tuple[Task, Tensor, Tensor]:
    """The task, inputs and targets as tensors; "name:option=value,..." takes what it does not say from the arrays."""
    if not isinstance(task, str):
        return task, *task.arrays(inputs, targets)
    name, _, text = task.partition(":")
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    kind = TASKS[name]
    options: dict[str, Any] = parse_options(f"option of task {name}", filter(None, text.split(",")), kind)
    x, y = kind.arrays(inputs, targets)
    return kind.of(x, y, **options), x, y


def written(task: Task) -> str:
    """The text from which `read_task` makes the task again."""
    if type(task) is not TASKS.get(task.name):
        raise InputError(
            f"task '{task.name}' has no text of its own, expected one of {', '.join(TASKS)}; keep it in code"
        )
    return f"{task.name}:" + ",".join(f"{field.name}={getattr(task, field.name)!r}" for field in fields(task))
