"""What torch sets aside inside a block, so that a test can say how much of it there may be at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):
    """Collects the bytes of each storage that an operation makes; views of what was there before are none."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        given = {each.data_ptr() for each in _storages((args, kwargs))}
        self.sizes += [each.nbytes() for each in _storages(found) if each.data_ptr() not in given]
        return found

    def of_at_least(self, size: int) -> int:
        """How many are so large."""
        return sum(each >= size for each in self.sizes)


def _storages(found: Any) -> list[Any]:
    return [leaf.untyped_storage() for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]
