"""Classification in which classes do not count the same: rare ones more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from scool_ppl.base.arguments import positive
from scool_ppl.errors import InputError
from scool_ppl.tasks.base import Task
from scool_ppl.tasks.categorical import Classification

BALANCED = "balanced"


@dataclass(frozen=True)
class Weighted(Classification):
    """Classification with the loss -w_y log softmax(h(x))_y; the accuracy counts every image the same.

    weights: (C,) positive, 1 on average over images, so that knowing nothing still costs log C. The loss is what networks
    learn from, and what their means of losses compare them by; image by image, where predictions are mixed, every image
    has its probability p(y | x), unweighted.
    """

    name: ClassVar[str] = "weighted classification"
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.weights) != self.num_classes or not positive(*self.weights):
            raise InputError(
                f"weights are {self.weights}, expected {self.num_classes} positive numbers, one for each class"
            )

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().losses(outputs, targets) * outputs.new_tensor(self.weights)[targets]

    def position_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._cross_entropy(outputs, targets)[..., None]

    def marginal(self, targets: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
        """min over p of -sum_c f_c w_c log p_c, which is at p_c = f_c w_c / sum_c f_c w_c."""
        counts = torch.stack([self.counts(own) for own in targets]).to(dtype)
        shares = counts / counts.sum(1, keepdim=True) * torch.tensor(self.weights, dtype=dtype)
        total = shares.sum(1)
        return total * torch.special.entr(shares / total[:, None]).sum(1)


def balanced(task: Task, counts: Tensor) -> Weighted:
    """The task with w_c = N / (C n_c) for the counts n_c (C,) of all clients: every class has the same part in the loss,
    whose weights are 1 on average. Of a class that nobody has, w_c is 1.
    """
    if not isinstance(task, Classification):
        raise InputError(
            f"classes of a task of {task.name} were to be balanced, expected a classification; leave it out"
        )
    present = counts > 0
    weights = torch.where(present, counts.sum() / (present.sum() * counts.clamp(min=1)), 1.0)
    return Weighted(task.num_classes, tuple(weights.tolist()))
