"""Federations of a few rows for the tests of the rooms data and tasks, small enough to be checked by eye."""

from __future__ import annotations

from typing import Any

import torch

from scool_ppl.data.federation import Federation
from scool_ppl.data.reading import SPLITS


def small(**changes: Any) -> Federation:
    """Two clients, eight rows, three classes; client 1 calls class c (c + 1) mod 3."""
    values: dict[str, Any] = {
        "inputs": torch.arange(16.0).view(8, 2),
        "targets": torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]),
        "train": (torch.tensor([0, 1]), torch.tensor([3, 4])),
        "validation": (torch.tensor([2]), torch.tensor([], dtype=torch.long)),
        "test": (torch.tensor([6, 7]), torch.tensor([6, 7])),
        "names": ("a", "b"),
        "num_classes": 3,
        "relabel": torch.tensor([[0, 1, 2], [1, 2, 0]]),
        "groups": (0, 1),
    }
    return Federation(**{**values, **changes})


def same_lists(first: Federation, second: Federation) -> bool:
    """Have the clients of both the same rows in every split?"""
    return all(torch.equal(a, b) for s in SPLITS for a, b in zip(getattr(first, s), getattr(second, s), strict=True))
