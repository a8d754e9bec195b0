"""Tasks: what clients predict, what being wrong costs them, and how predictions are scored and mixed."""

from scool_ppl.tasks.base import Task
from scool_ppl.tasks.categorical import Classification, NextToken
from scool_ppl.tasks.named import TASKS, read_task, written
from scool_ppl.tasks.regression import Regression

__all__ = ["TASKS", "Classification", "NextToken", "Regression", "Task", "read_task", "written"]
