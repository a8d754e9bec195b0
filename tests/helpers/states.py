"""States of runs compared tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from scool_ppl.em import EMState
from scool_ppl.train import Remembered


def flattened(state: EMState) -> dict[str, Tensor]:
    """All tensors of a state and of those beside it, by path."""
    found = {}
    for track, beside in state.beside.items():
        found |= {f"beside/{track}/{path}": value for path, value in flattened(beside).items()}
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


def same_bits(found: EMState, expected: EMState) -> None:
    """The same names in the same order, dtypes, shapes and bits, and the same rounds and seeds."""
    ours, theirs = flattened(found), flattened(expected)
    assert list(ours) == list(theirs)
    for path, value in theirs.items():
        assert ours[path].dtype == value.dtype
        assert ours[path].shape == value.shape
        bits = [x.contiguous().flatten().view(torch.uint8) for x in (ours[path], value)]
        assert torch.equal(*bits), path
    for one, other in ((found, expected), *zip(found.beside.values(), expected.beside.values(), strict=True)):
        assert (one.round, one.seed) == (other.round, other.seed)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor, number and axis in dictionaries and named tuples, by path."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(part, f"{path}/{name}")
    elif hasattr(value, "_asdict"):
        yield from leaves(value._asdict(), path)
    else:
        yield path, value


def identical(one: Any, other: Any) -> bool:
    """Equal in every leaf, NaN being equal to NaN."""
    here, there = dict(leaves(one)), dict(leaves(other))
    return here.keys() == there.keys() and all(_equal(value, there[path]) for path, value in here.items())


def _equal(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return bool(one == other)
    return one.dtype == other.dtype and one.shape == other.shape and bool(one.isclose(other, 0, 0, True).all())
