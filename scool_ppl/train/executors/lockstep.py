"""Lock step: clients who pull one another take every step together, one by one or stacked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scool_ppl.base.randomness import key
from scool_ppl.train.batches import Batches
from scool_ppl.train.contract import Coupling
from scool_ppl.train.executors.executor import Executor
from scool_ppl.train.questions import Params


def in_lock_step(
    executor: Executor,
    params: Params,
    state: Params,
    inputs: Tensor,
    batches: Batches,
    coupling: Coupling,
    seeds: Sequence[int],
) -> tuple[Params, Params, Tensor]:
    """Training in which everybody is pulled to where the others are at that step: the executor's `train`, step by step.

    A client that has run out of batches stays where it is, and goes on pulling the others. All steps use the same memory:
    fresh memory for every network costs more than the sums.
    """
    params, losses, pull = {name: value.clone() for name, value in params.items()}, [], None
    for step in range(batches.index.shape[1]):
        one = batches.steps(step, step + 1)
        drawn = [key(seed, "step", step) for seed in seeds]
        pull = coupling.held(params, pull)
        state, lost = executor.advance(params, state, inputs, one, pull, drawn)
        losses.append(lost)
    return params, state, torch.cat(losses, 1) if losses else batches.weight.new_zeros(len(batches.index), 0)
