"""One of several values: the label of a sample, or the next token at each position."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from scool_ppl.base.arguments import check_whole
from scool_ppl.base.arrays import ArrayLike, float_tensor, long_tensor
from scool_ppl.errors import InputError
from scool_ppl.tasks.base import check_finite, check_numbers, check_range
from scool_ppl.tasks.measures import Measures, of_classes, of_tokens

_FEW, _MANY = 128, 4096
"""Of so few values, and of so many outputs, softmax is quicker across samples, side by side, than within each."""


class _Categorical(ABC):
    """One of `width` values, with the outputs as logits."""

    @property
    @abstractmethod
    def width(self) -> int: ...

    def fitted(self, targets: Tensor) -> Self:
        return self

    def statistics(self, targets: Tensor) -> Tensor:
        """Nothing has to be known."""
        return torch.zeros(0, dtype=torch.float64)

    def pooled(self, statistics: Tensor) -> Self:
        return self

    @property
    def chance(self) -> float:
        """log C: all values are equally probable."""
        return math.log(self.width)

    def marginal(self, targets: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
        """Entropy of the frequencies."""
        counts = torch.stack([self.counts(own) for own in targets]).to(dtype)
        return torch.special.entr(counts / counts.sum(1, keepdim=True)).sum(1)

    def counts(self, targets: Tensor) -> Tensor:
        return torch.bincount(targets.flatten(), minlength=self.width)

    def predictive(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(-1)

    def from_predictive(self, predictive: Tensor) -> Tensor:
        return predictive.clamp(min=1e-30).log()

    def tempered(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        """softmax(h / T)"""
        return outputs / temperature

    def _cross_entropy(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.width <= _FEW and outputs.numel() >= _MANY:
            log_p = outputs.mT.contiguous().log_softmax(-2)
            return -log_p.gather(-2, targets.unsqueeze(-2)).squeeze(-2)
        return F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none").view(targets.shape)


@dataclass(frozen=True)
class Classification(_Categorical):
    """Label y of x, one of `num_classes`: -log softmax(h(x))_y; scored by accuracy. Targets (N,) long."""

    name: ClassVar[str] = "classification"
    score: ClassVar[str] = "accuracy"
    num_classes: int

    def __post_init__(self) -> None:
        check_whole("num_classes", self.num_classes, least=0)

    @classmethod
    def of(cls, inputs: Tensor, targets: Tensor, num_classes: int | None = None) -> Classification:
        """As many classes as the targets show, unless they are given."""
        return cls(_values(targets) if num_classes is None else num_classes)

    @property
    def width(self) -> int:
        return self.num_classes

    def output_shape(self, input_shape: Sequence[int]) -> tuple[int, ...]:
        return (self.num_classes,)

    @staticmethod
    def arrays(inputs: ArrayLike, targets: ArrayLike) -> tuple[Tensor, Tensor]:
        remedy = "convert them to integers, or say task='regression'"
        return float_tensor(inputs, "inputs"), long_tensor(targets, "targets", remedy)

    def check(self, inputs: Tensor, targets: Tensor) -> None:
        check_numbers(inputs)
        if targets.dtype != torch.long or targets.shape != inputs.shape[:1]:
            raise InputError(
                f"targets are {targets.dtype} of shape {tuple(targets.shape)}, expected int64 ({len(inputs)},): one "
                "label for each input"
            )
        check_finite("input", inputs)
        check_range("targets", targets, self.num_classes, "set num_classes")

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._cross_entropy(outputs, targets)

    def position_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.losses(outputs, targets)[..., None]

    def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.argmax(-1) == targets

    def measures(self, predictive: Tensor, targets: Tensor) -> Measures:
        return of_classes(predictive, targets)

    def own_outputs(self, counts: Tensor) -> Tensor:
        """The classes that a client has."""
        return counts > 0


@dataclass(frozen=True)
class NextToken(_Categorical):
    """The next of `vocabulary` tokens at each of T positions: the mean over t of -log softmax(h(x)_t)_{y_t}.

    Inputs and targets (N, T) long, outputs (..., T, vocabulary); scored by the share of next tokens that are right.
    """

    name: ClassVar[str] = "next-token"
    score: ClassVar[str] = "accuracy"
    num_classes: ClassVar[int] = 0
    vocabulary: int

    def __post_init__(self) -> None:
        check_whole("vocabulary", self.vocabulary, least=0)

    @classmethod
    def of(cls, inputs: Tensor, targets: Tensor, vocabulary: int | None = None) -> NextToken:
        """As many tokens as inputs and targets show, unless they are given."""
        return cls(max(_values(inputs), _values(targets)) if vocabulary is None else vocabulary)

    @property
    def width(self) -> int:
        return self.vocabulary

    def output_shape(self, input_shape: Sequence[int]) -> tuple[int, ...]:
        return (*input_shape, self.vocabulary)

    @staticmethod
    def arrays(inputs: ArrayLike, targets: ArrayLike) -> tuple[Tensor, Tensor]:
        return long_tensor(inputs, "inputs"), long_tensor(targets, "targets")

    def check(self, inputs: Tensor, targets: Tensor) -> None:
        for what, values in (("inputs", inputs), ("targets", targets)):
            if values.dtype != torch.long or values.ndim != 2 or values.shape != inputs.shape or not values.shape[1]:
                raise InputError(
                    f"{what} are {values.dtype} of shape {tuple(values.shape)}, expected int64 (N, T): a window of "
                    "tokens, and the next one at each position"
                )
            check_range(what, values, self.vocabulary, "set vocabulary")

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._cross_entropy(outputs, targets).mean(-1)

    def position_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._cross_entropy(outputs, targets)

    def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(-1) == targets).to(outputs.dtype).mean(-1)

    def measures(self, predictive: Tensor, targets: Tensor) -> Measures:
        return of_tokens(predictive, targets)

    def own_outputs(self, counts: Tensor) -> Tensor:
        return torch.ones(len(counts), self.width, dtype=torch.bool)


def _values(tokens: Tensor) -> int:
    return 1 + int(tokens.max()) if tokens.numel() else 0
