"""Numbers, with a Gaussian likelihood."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from scool_ppl.base.arguments import finite, positive, whole
from scool_ppl.base.arrays import ArrayLike, float_tensor
from scool_ppl.errors import InputError
from scool_ppl.tasks.base import check_finite, check_numbers
from scool_ppl.tasks.measures import Measures, of_numbers


@dataclass(frozen=True)
class Regression:
    """Numbers y of x: -log N(y; h(x), sigma^2 I); scored by the share of variance explained, 1 - |y - h(x)|^2 / variance.

    Targets (N,) or (N, dimensions) float32. variance: of the training targets of the whole federation, E |y - E y|^2,
    which fills it in where it is 0. A mixture of networks predicts its mean.
    """

    name: ClassVar[str] = "regression"
    score: ClassVar[str] = "R2"
    num_classes: ClassVar[int] = 0
    sigma: float = 1.0
    dimensions: int = 1
    variance: float = 0.0

    def __post_init__(self) -> None:
        possible = positive(self.sigma) and whole(self.dimensions) and finite(self.variance)
        if not possible or self.variance < 0:
            raise InputError(
                f"Regression(sigma={self.sigma}, dimensions={self.dimensions}, variance={self.variance}): expected a "
                "positive sigma, at least one dimension and a variance from 0 up"
            )

    @classmethod
    def of(cls, inputs: Tensor, targets: Tensor, dimensions: int | None = None, **options: float) -> Regression:
        """With as many dimensions as the targets have, unless they are given."""
        found = targets.shape[1] if targets.ndim == 2 else 1
        return cls(dimensions=found if dimensions is None else dimensions, **options)

    @property
    def width(self) -> int:
        return self.dimensions

    def output_shape(self, input_shape: Sequence[int]) -> tuple[int, ...]:
        return (self.dimensions,)

    @staticmethod
    def arrays(inputs: ArrayLike, targets: ArrayLike) -> tuple[Tensor, Tensor]:
        return float_tensor(inputs, "inputs"), float_tensor(targets, "targets")

    def check(self, inputs: Tensor, targets: Tensor) -> None:
        check_numbers(inputs)
        count = len(inputs)
        shapes = [(count, self.dimensions), *([(count,)] if self.dimensions == 1 else [])]
        if targets.dtype != torch.float32 or tuple(targets.shape) not in shapes:
            raise InputError(
                f"targets are {targets.dtype} of shape {tuple(targets.shape)}, expected float32 {shapes[-1]}: "
                f"{self.dimensions} for each input; convert them, or set dimensions"
            )
        check_finite("input", inputs)
        check_finite("target", targets)

    def fitted(self, targets: Tensor) -> Self:
        if self.variance:
            return self
        variance = float(_variance(targets.double()))
        if variance == 0:
            raise InputError(
                f"the {len(targets)} training targets are all the same, expected some variance to explain; "
                "give Regression(variance=...) if that is meant"
            )
        return replace(self, variance=variance)

    def statistics(self, targets: Tensor) -> Tensor:
        """n, the mean (D), and the sum of |y - mean|^2."""
        values = targets.double().reshape(len(targets), -1)
        mean = values.mean(0)
        return torch.cat([values.new_tensor([len(values)]), mean, (values - mean).square().sum()[None]])

    def pooled(self, statistics: Tensor) -> Self:
        """With the variance of all: that within clients, and that between their means."""
        count, mean, within = statistics[:, 0], statistics[:, 1:-1], statistics[:, -1]
        total = count.sum()
        common = (count[:, None] * mean).sum(0) / total
        between = count * (mean - common).square().sum(1)
        return replace(self, variance=float((within + between).sum() / total))

    @property
    def chance(self) -> float:
        """The mean of all training targets, whatever the input: log(sigma sqrt(2 pi)) D + variance / (2 sigma^2)."""
        return self._constant + self.variance / (2 * self.sigma**2)

    def marginal(self, targets: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
        """The mean of the client's own training targets, whatever the input."""
        variances = torch.stack([_variance(own.double()) for own in targets])
        return (self._constant + variances / (2 * self.sigma**2)).to(dtype)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._constant + self._squared_error(outputs, targets) / (2 * self.sigma**2)

    def position_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.losses(outputs, targets)[..., None]

    def tempered(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        """As they are: sigma says how sure they are."""
        return outputs

    def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return 1 - self._squared_error(outputs, targets) / self.variance

    def measures(self, predictive: Tensor, targets: Tensor) -> Measures:
        return of_numbers(predictive, targets)

    def own_outputs(self, counts: Tensor) -> Tensor:
        return torch.ones(len(counts), self.width, dtype=torch.bool)

    def counts(self, targets: Tensor) -> Tensor:
        """Numbers are not counted."""
        return torch.zeros(0, dtype=torch.long)

    def predictive(self, outputs: Tensor) -> Tensor:
        return outputs

    def from_predictive(self, predictive: Tensor) -> Tensor:
        return predictive

    @property
    def _constant(self) -> float:
        return self.dimensions * (math.log(self.sigma) + math.log(2 * math.pi) / 2)

    def _squared_error(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets.reshape(outputs.shape)).square().sum(-1)


def _variance(targets: Tensor) -> Tensor:
    """E |y - E y|^2 of (n,) or (n, D)."""
    return (targets - targets.mean(0)).square().mean(0).sum()
