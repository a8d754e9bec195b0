"""Quarantine: who cannot take part in a round, and what a round without them leaves as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scool_ppl.errors import ClientError

if TYPE_CHECKING:
    from scool_ppl.train.batches import Probe
    from scool_ppl.train.clients import Clients
    from scool_ppl.train.contract import Params, Trained


# Who is to blame.


def check_training(trained: Trained, moved: Tensor, present: Tensor, names: Sequence[str]) -> None:
    """Raises a ClientError for those present (K,) whose network is not finite, or whose loss is not though they moved (K,).

    A client without images has no loss, which is no fault.
    """
    lost = moved.cpu() & ~trained.loss.isfinite()
    broken = torch.zeros_like(lost)
    for value in (*trained.params.values(), *trained.optimizer_state.values()):
        broken |= ~value.flatten(1).isfinite().all(1).cpu() if value.dim() > 1 else ~value.isfinite().cpu()
    blame(
        lost,
        "its training loss is not finite",
        broken & present & ~lost,
        "its network is not finite after training",
        names,
    )


def check_networks(clients: Clients, params: Params, probe: Probe, present: Tensor) -> None:
    """Raises a ClientError for those whose network has no finite loss on its own probe; all of them if none has."""
    with torch.no_grad():
        broken = ~clients.probe_loss(params, probe).cpu().isfinite() & present
    blame(broken, "its network's loss is not finite", torch.zeros_like(broken), "", clients.names)


def blame(one: Tensor, reason: str, other: Tensor, other_reason: str, names: Sequence[str]) -> None:
    reasons = {names[i]: reason for i in one.nonzero().flatten().tolist()}
    reasons |= {names[i]: other_reason for i in other.nonzero().flatten().tolist()}
    if reasons:
        raise ClientError(reasons)


# A round without them.
