"""The user's arrays of numbers, whatever holds them, as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scool_ppl.errors import InputError

ArrayLike = Tensor | np.ndarray[Any, Any] | Sequence[Any]


def float_tensor(values: ArrayLike, what: str) -> Tensor:
    """The values as float32, sharing the memory of those that are."""
    tensor = _tensor(values, what)
    if tensor.is_complex():
        raise InputError(f"{what} are {tensor.dtype}, expected real numbers; give real and imaginary parts as features")
    return tensor.to(torch.float32)


def long_tensor(values: ArrayLike, what: str, remedy: str = "convert them to integers") -> Tensor:
    """The values as int64; fractions are refused, not rounded."""
    tensor = _tensor(values, what)
    if tensor.numel() and (tensor.is_floating_point() or tensor.is_complex()):
        raise InputError(f"{what} are {tensor.dtype}, expected whole numbers; {remedy}")
    return tensor.long()


def _tensor(values: ArrayLike, what: str) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{what} cannot be read as one array of numbers ({reason}); give an array") from error
