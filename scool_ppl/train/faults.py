"""When training breaks: who is at fault, and a word before it does."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from scool_ppl.base.describe import listed
from scool_ppl.errors import ClientError, InputError
from scool_ppl.graph.candidates import not_finite
from scool_ppl.train.contract import Trained

EXPLODED = 1e3
"""Losses beyond so many times that of knowing nothing are no learning."""


def warn_of_explosion(loss: float, chance: float, round: int) -> bool:
    """Warn, and say so, if the mean training loss of a round is far beyond that of knowing nothing."""
    exploded = loss > EXPLODED * max(chance, 1.0)
    if exploded:
        warnings.warn(
            f"the training loss of round {round} is {loss:.3g}, that of knowing nothing {chance:.3g}: lower the learning "
            "rate, or scale inputs and targets to numbers of about one (tables: scale=pooled)",
            stacklevel=3,
        )
    return exploded


def check_training(trained: Trained, present: Tensor, names: Sequence[str]) -> None:
    """Raises a ClientError for those present (K,) whose network is not finite, or whose loss is not though they moved.

    A client without images has no loss, which is no fault.
    """
    lost = trained.moved & ~trained.loss.isfinite()
    broken = torch.zeros_like(lost)
    for value in (*trained.params.values(), *trained.optimizer_state.values()):
        found = not_finite(value.flatten(1) if value.dim() > 1 else value.unsqueeze(1))
        broken |= torch.zeros_like(broken) if found is None else found.cpu()
    blame(
        {"its training loss is not finite": lost, "its network is not finite after training": broken & present}, names
    )


def blame(faults: dict[str, Tensor], names: Sequence[str]) -> None:
    """Raises a ClientError with the first reason that holds for each client: reason -> whom it holds for, (K,) bool."""
    reasons: dict[str, str] = {}
    for reason, guilty in faults.items():
        for client in guilty.nonzero().flatten().tolist():
            reasons.setdefault(names[client], reason)
    if reasons:
        raise ClientError(reasons)


def check_held_out(held: Tensor, names: Sequence[str]) -> None:
    """Raises InputError unless everybody has validation images: held (K,) bool."""
    if not bool(held.all()):
        without = listed(name for name, some in zip(names, held.tolist(), strict=True) if not some)
        raise InputError(
            f"no validation images of {without}, this model needs them; give the federation validation=0.2, and every "
            "client rows enough"
        )


def check_probed(empty: Tensor, asked: Tensor, names: Sequence[str]) -> None:
    """Raises InputError where a client who is `asked` (n,) has nothing in its probe: empty (K,) bool."""
    if bool(empty[asked].any()):
        told = ", ".join(names[i] for i in empty.nonzero().flatten().tolist())
        raise InputError(f"no images in the probe of: {told}; expected one at least; probe another split or mask them")
