"""States of runs compared tensor by tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from scool_ppl.em import EMState
from scool_ppl.train import Remembered


def flattened(state: EMState) -> dict[str, Tensor]:
    """All tensors of a state, by path."""
    found = {}
    for field, value in state._asdict().items():
        entries = value if isinstance(value, dict) else {"": value}
        if field == "peers" and value is not None:
            entries = {"mask": value.mask, "senders": value.senders, "looked": value.looked}
        for name, entry in entries.items():
            tensor = entry.value if isinstance(entry, Remembered) else entry
            if isinstance(tensor, Tensor):
                found[f"{field}/{name}"] = tensor
    return found


def same(one: EMState, other: EMState) -> None:
    """The same tensors with the same values, NaN being equal to NaN."""
    left, right = flattened(one), flattened(other)
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value.nan_to_num(-9.0), right[name].nan_to_num(-9.0)), name
