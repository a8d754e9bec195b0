"""A small federation of every task, and the best prediction that knows nothing of the inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scool_ppl.data.federation import Federation
from scool_ppl.data.generated import sine, text
from scool_ppl.tasks.base import Task
from scool_ppl.train.clients import Clients
from scool_ppl.train.questions import Params
from tests.helpers.small import normal


def integers(high: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def federation(name: str, **options: Any) -> Federation:
    """A small one of each kind; regression also with targets of several dimensions."""
    random = torch.Generator().manual_seed(1)
    if name == "text":
        return text(random, **{"clients": 4, "groups": 2, "train": 6, "test": 5, "length": 7, **options})
    if name == "sine":
        return sine(random, **{"clients": 4, "train": 10, "test": 6, **options})
    rows = 40
    targets = {"vectors": normal(rows, 3, seed=2), "classes": integers(3, rows, seed=2)}[name]
    task = {"vectors": "regression:sigma=0.7", "classes": "classification"}[name]
    return Federation.from_arrays(normal(rows, 5), targets, torch.arange(rows) % 4, task=task)


def clients(data: Federation, executor: str = "stacked", **options: Any) -> Clients:
    return Clients(
        data, executor=executor, **{"dtype": torch.float64, "batch_size": 4, "common_start": False, **options}
    )


def shifted(params: Params) -> Params:
    """Networks of which no two are alike."""
    return {name: value + 0.3 * normal(*value.shape, seed=len(name)) for name, value in params.items()}


def best_constant_loss(task: Task, targets: Tensor, shape: tuple[int, ...]) -> float:
    """The least mean loss that the same outputs (width,) for every sample can have, found by gradient descent."""
    constant = torch.zeros(task.width, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([constant], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-10)

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = task.losses(constant.expand(shape), targets).mean()
        value.backward()
        return value

    optimizer.step(loss)
    return float(loss().detach())
