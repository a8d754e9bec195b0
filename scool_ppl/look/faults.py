"""Who is at fault when numbers that clients gave are not finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from scool_ppl.graph.candidates import Peers
from scool_ppl.train.faults import blame

NETWORK, DATA = "its network's loss is not finite", "every loss on its data is not finite"


def check_table(
    table: Tensor, peers: Peers, names: Sequence[str], whose: Literal["receiver", "sender", "both"]
) -> None:
    """Raises a ClientError for clients whose network, or else whose data, give no finite entry in any pair (K, M).

    The network of each pair is its receiver's or its sender's, the data are the other's; "both": the pair's entry is of
    both alike, and where that puts the blame on everybody, nobody is blamed. Nor is a component.
    """
    rows, columns, senders = peers.pairs()
    bad = ~table.detach()[rows, columns].isfinite()
    if not bool(bad.any()):
        return
    networks, data = (senders, rows) if whose == "sender" else (rows, senders)
    size = len(names) + peers.components
    broken = _everywhere(networks, bad, size)
    if whose == "both":
        broken &= ~broken[peers.mask.any(1)].all()
    others = ~broken[networks] & ~broken[data]
    silent = _everywhere(data[others], bad[others], size) if whose != "both" else torch.zeros_like(broken)
    blame({NETWORK: broken[: len(names)], DATA: silent[: len(names)]}, names)


def _everywhere(owner: Tensor, bad: Tensor, size: int) -> Tensor:
    """Owners all of whose pairs are bad, (K,)."""
    total, broken = owner.bincount(minlength=size), owner[bad].bincount(minlength=size)
    return (total > 0) & (total == broken)


def check_losses(losses: Tensor, present: Tensor, names: Sequence[str]) -> None:
    """Raises a ClientError for those present (K,) whose network has no finite loss (K,) on its own data."""
    blame({NETWORK: ~losses.isfinite() & present}, names)
