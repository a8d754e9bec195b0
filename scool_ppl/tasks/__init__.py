"""Tasks: what clients predict, what being wrong costs them, and how predictions are scored and mixed."""

from scool_ppl.tasks.base import Task
from scool_ppl.tasks.categorical import Classification, NextToken
from scool_ppl.tasks.named import TASKS, plain, read_task, task_of, written
from scool_ppl.tasks.regression import Regression
from scool_ppl.tasks.weighted import Weighted, balanced

__all__ = [
    "TASKS",
    "Classification",
    "NextToken",
    "Regression",
    "Task",
    "Weighted",
    "balanced",
    "plain",
    "read_task",
    "task_of",
    "written",
]
