"""What one client deploys as an ordinary module of PyTorch, with what it needs to predict from the user's own inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scool_ppl.base.arrays import float_tensor, long_tensor
from scool_ppl.data.own import channels_first
from scool_ppl.data.preparation import Preparation
from scool_ppl.errors import InputError
from scool_ppl.tasks.base import Task

_AT_ONCE = 1024  # inputs in one forward pass of `predictive`


class Mixed(nn.Module):
    """Outputs that stand for sum_j w_j p_j, the predictions of several networks."""

    def __init__(self, networks: Iterable[nn.Module], shares: Tensor, task: Task) -> None:
        super().__init__()
        self.networks, self._task = nn.ModuleList(networks), task
        self.register_buffer("shares", shares)

    def forward(self, inputs: Tensor) -> Tensor:
        parts = [self._task.predictive(network(inputs)) for network in self.networks]
        return self._task.from_predictive(_weighted(parts, self.get_buffer("shares")))


class Standardise(nn.Module):
    """(x - mean) / std of each channel or column; of_bytes: only bytes are, other numbers have been already."""

    def __init__(self, mean: Tensor, std: Tensor, of_bytes: bool) -> None:
        super().__init__()
        self.of_bytes = of_bytes
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, inputs: Tensor) -> Tensor:
        mean = self.get_buffer("mean")
        if self.of_bytes and inputs.dtype != torch.uint8:
            return inputs.to(mean.dtype)
        return (inputs.to(mean.dtype) - mean) / self.get_buffer("std")


class ClientNetwork(nn.Module):
    """All that a client predicts with: sum_c w_c p_c(y | x) of its candidates, its preparation of x, the names of y.

    Inputs (B, ...) are as the user's own files have them: bytes of images, numbers of a table before scaling, with a column
    for each of `feature_names`, or else what the federation holds. forward gives probabilities of the classes (B, C) or
    means (B, D) in the units of the targets; `predict` gives labels.
    """

    def __init__(
        self,
        client: str,
        candidates: Mapping[str, tuple[float, nn.Module]],
        task: Task,
        *,
        input_shape: tuple[int, ...],
        tokens: bool = False,
        preparation: Preparation | None = None,
        offsets: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.client, self.task, self.preparation = client, task, preparation
        self.input_shape, self.tokens = input_shape, tokens
        self.relies_on = {name: weight for name, (weight, _) in candidates.items()}
        self.labels: tuple[str, ...] = () if preparation is None else preparation.labels
        self.candidates = nn.ModuleList(network for _, network in candidates.values())
        self._offset = offsets is not None
        self.register_buffer("weights", torch.tensor(list(self.relies_on.values()), dtype=self.dtype))
        if offsets is not None:
            self.register_buffer("offsets", offsets.to(self.dtype))
        self.prepare = _standardise(preparation, self.input_shape, self.dtype)
        self.eval()

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters."""
        return next(self.parameters()).dtype

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The columns of an input, () where it is no table."""
        return () if self.preparation is None else self.preparation.feature_names

    @property
    def takes_bytes(self) -> bool:
        """Are the inputs images as bytes?"""
        return isinstance(self.prepare, Standardise) and self.prepare.of_bytes

    def forward(self, inputs: Tensor) -> Tensor:
        return self.from_prepared(self.prepare(inputs))

    def from_prepared(self, inputs: Tensor) -> Tensor:
        """The same for inputs as the federation holds them, prepared already."""
        if not self.tokens:
            inputs = inputs.to(self.dtype)
        parts = [self.task.predictive(self._outputs(network, inputs)) for network in self.candidates]
        predicted = _weighted(parts, self.get_buffer("weights"))
        return predicted if self.preparation is None else self.preparation.decode_target(predicted, self.client)

    def _outputs(self, network: nn.Module, inputs: Tensor) -> Tensor:
        outputs: Tensor = network(inputs)
        return outputs + self.get_buffer("offsets") if self._offset else outputs

    def predictive(self, inputs: Any) -> Tensor:
        """Probabilities (B, C) or means (B, D) of an array of inputs, or of a table with their columns, on the CPU.

        A table is a DataFrame, a mapping of columns, or the path of a csv, parquet or npz file.
        """
        if isinstance(inputs, Tensor | np.ndarray | list | tuple):
            return self._in_pieces(self.__call__, self._rows(inputs))
        if self.preparation is None or not self.preparation.columns:
            found = f"'{inputs}'" if isinstance(inputs, str | os.PathLike) else f"a {type(inputs).__name__}"
            raise InputError(
                f"{found} was given as a table, {self.client} has learned from arrays; give an array of shape "
                f"{self._expected}, or an .npz file that has it as `inputs`"
            )
        return self.predictive_prepared(self.preparation.transform(inputs, self.client))

    def predictive_prepared(self, inputs: Tensor) -> Tensor:
        """The same of inputs as the federation holds them."""
        return self._in_pieces(self.from_prepared, inputs)

    @torch.no_grad()
    def _in_pieces(self, run: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        device = next(self.parameters()).device
        return torch.cat([run(part.to(device)).cpu() for part in rows.split(_AT_ONCE)])

    @property
    def _expected(self) -> str:
        return f"(N, {', '.join(map(str, self.input_shape))})"

    def predict(self, inputs: Any) -> np.ndarray[Any, Any]:
        """Labels (B,), by name where they have names, else numbers; means (B,) or (B, D); what else the task predicts."""
        predicted = self.predictive(inputs)
        if not self.task.num_classes:
            return (predicted.squeeze(-1) if predicted.shape[-1] == 1 else predicted).numpy()
        chosen = predicted.argmax(-1).numpy()
        return np.array(self.labels)[chosen] if self.labels else chosen

    def _rows(self, inputs: Any) -> Tensor:
        """An array of inputs as a tensor (B, ...) of this shape."""
        what = f"the inputs of {self.client}"
        if self.takes_bytes and str(getattr(inputs, "dtype", "")).removeprefix("torch.") == "uint8":
            rows = channels_first(torch.as_tensor(inputs))
        else:
            rows = (long_tensor if self.tokens else float_tensor)(inputs, what)
        if rows.ndim > 2 and len(self.input_shape) == 1:
            rows = rows.flatten(1)
        if tuple(rows.shape[1:]) != self.input_shape or len(rows) == 0:
            raise InputError(
                f"{what} have shape {tuple(rows.shape)}, expected {self._expected} with at least one row, as the run's "
                "federation has them"
            )
        return rows


def _weighted(parts: Iterable[Tensor], shares: Tensor) -> Tensor:
    """sum_c shares_c parts_c"""
    total: Tensor | float = 0.0
    for part, share in zip(parts, shares, strict=True):
        total = total + share * part
    return torch.as_tensor(total)


def _standardise(preparation: Preparation | None, shape: tuple[int, ...], dtype: torch.dtype) -> nn.Module:
    """What the preparation does to arrays: nothing, or arithmetic."""
    if preparation is not None and preparation.columns:
        mean, std = preparation.scale()
        return Standardise(mean.to(dtype), std.to(dtype), of_bytes=False)
    if preparation is None or preparation.scaling is None:
        return nn.Identity()
    scaling, like = preparation.scaling, (-1, *(1,) * (len(shape) - 1))
    mean, std = (torch.tensor(values, dtype=dtype).view(like) for values in (scaling.mean, scaling.std))
    return Standardise(mean, std, scaling.of_bytes)
