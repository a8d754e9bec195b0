"""What a task is, and what its arrays must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor

from scool_ppl.base.arrays import ArrayLike
from scool_ppl.errors import InputError


class Task(Protocol):
    """What is learned; the rest of the library never asks which task it has.

    Shapes: `outputs` (..., *output_shape) of networks, `targets` (..., *one sample's), results (...) one a sample.
    """

    name: ClassVar[str]
    score: ClassVar[str]  # what tables and charts call `scores`

    @property
    def width(self) -> int:
        """Width of a network's last layer."""

    @property
    def num_classes(self) -> int:
        """The classes that `Federation.relabel` may rename, 0 where there are none."""

    def output_shape(self, input_shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of a network's output for one sample."""

    def arrays(self, inputs: ArrayLike, targets: ArrayLike) -> tuple[Tensor, Tensor]:
        """Inputs and targets as tensors of the task's types."""

    def check(self, inputs: Tensor, targets: Tensor) -> None:
        """Raises InputError unless these have the task's types and shapes and values that it can learn."""

    def fitted(self, targets: Tensor) -> Self:
        """The task with what it has to know of all training targets of the federation."""

    def statistics(self, targets: Tensor) -> Tensor:
        """(S,) float64: what `pooled` has to know of the training targets of one client, without the targets."""

    def pooled(self, statistics: Tensor) -> Self:
        """The task as it is `fitted` to the training targets of all clients, from the statistics (K, S) of each."""

    @property
    def chance(self) -> float:
        """The loss of knowing nothing, of inputs nor of clients."""

    def marginal(self, targets: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
        """The loss of knowing only how each client's targets are distributed, (K,)."""

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """-log p(targets | outputs); of a sequence, the mean over its positions."""

    def position_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """-log p of each position of the targets, (..., T), T being 1 but for sequences; never weighted, else their mean is
        `losses`.
        """

    def tempered(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        """Outputs that are less sure by a temperature above 1, which broadcasts with them; as they are where the task
        says itself how sure they are.
        """

    def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """How good the prediction is: higher is better, 1 is perfect."""

    def measures(self, predictive: Tensor, targets: Tensor) -> dict[str, float]:
        """How good predictions are in other ways, by name; of one client, nan where it is not defined."""

    def own_outputs(self, counts: Tensor) -> Tensor:
        """(K, width) bool: the outputs among which each client chooses where only its own task is scored.

        counts: how often each client has each value in any of its parts, (K, width), or (K, 0), see `counts`.
        """

    def counts(self, targets: Tensor) -> Tensor:
        """How often each value occurs among the targets, (width,) long; (0,) where targets are no such values."""

    def predictive(self, outputs: Tensor) -> Tensor:
        """What mixtures of networks average: probabilities, or means."""

    def from_predictive(self, predictive: Tensor) -> Tensor:
        """The outputs that stand for it."""


def check_numbers(inputs: Tensor) -> None:
    """Raises InputError unless there are numbers for each sample."""
    if inputs.dtype != torch.float32 or inputs.ndim < 2:
        shape = tuple(inputs.shape)
        raise InputError(f"inputs are {inputs.dtype} of shape {shape}, expected float32 (N, ...); convert or reshape")


def check_finite(what: str, values: Tensor) -> None:
    """Raises InputError that names the first row with NaN or infinity."""
    ends = values.detach().aminmax() if values.numel() else ()  # no copy of all values, as isfinite makes
    if not all(bool(end.isfinite()) for end in ends):
        row = int(values.isfinite().reshape(len(values), -1).all(1).logical_not().nonzero()[0])
        raise InputError(f"{what} {row} holds NaN or infinity, expected finite numbers; remove or repair the row")


def check_range(what: str, values: Tensor, count: int, remedy: str) -> None:
    """Raises InputError unless the values are among 0 to count - 1."""
    if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < count:
        low, high = int(values.min()), int(values.max())
        raise InputError(f"{what} run from {low} to {high}, expected 0 to {count - 1}; renumber, or {remedy}")
