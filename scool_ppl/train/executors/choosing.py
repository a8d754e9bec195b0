"""Which executor runs the clients: what an optimiser allows, and what is faster here."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.train.executors.descent import MakeOptimizer

_MEASURED: dict[object, str] = {}


class Layout(NamedTuple):
    """What an optimiser keeps: `counters`, its entries that are one number per tensor; `rowwise`, may it be stacked?"""

    counters: frozenset[str]
    rowwise: bool


def fastest(case: object, candidates: dict[str, Callable[[], object]]) -> str:
    """The quickest candidate after one warm-up call each.

    Remembered per case in this process, so that equal runs in it take the same executor and give the same bits.
    """
    if case not in _MEASURED:
        seconds = {}
        for name, run in candidates.items():
            run()
            start = time.perf_counter()
            run()
            seconds[name] = time.perf_counter() - start
        _MEASURED[case] = min(seconds, key=lambda name: seconds[name])
    return _MEASURED[case]


def optimizer_layout(make: MakeOptimizer, device: torch.device) -> Layout:
    """What an optimiser keeps and whether it may be stacked: two steps on a stack of two against two steps on each."""
    values = torch.linspace(-1, 1, 18, device=device).view(2, 3, 3)
    gradients = torch.arange(36.0, device=device).sin().view(2, 2, 3, 3)

    def after_two(value: Tensor, gradient: Tensor) -> tuple[Tensor, dict[str, Any]]:
        leaf = value.clone().requires_grad_()
        optimizer = make([leaf])
        for step in gradient:
            leaf.grad = step.clone()
            optimizer.step()
        return leaf.detach(), optimizer.state[leaf]

    try:
        alone = [after_two(values[row], gradients[:, row])[0] for row in range(2)]
    except (TypeError, ValueError, AttributeError) as problem:
        raise InputError(
            f"the optimiser cannot be used: {problem}; expected something like partial(torch.optim.SGD, lr=0.1)"
        ) from problem
    try:
        stacked, state = after_two(values, gradients)
    except (RuntimeError, ValueError):
        return Layout(frozenset(), rowwise=False)
    sizes = {name: torch.as_tensor(entry).dim() for name, entry in state.items() if entry is not None}
    rowwise = torch.allclose(stacked, torch.stack(alone)) and all(size in (0, 3) for size in sizes.values())
    return Layout(frozenset(name for name, size in sizes.items() if size == 0), rowwise)
