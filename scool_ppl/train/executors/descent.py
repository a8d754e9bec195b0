"""Steps of an optimiser on the parameters of one or of many networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from scool_ppl.tasks.base import Task
from scool_ppl.train.batches import Batches
from scool_ppl.train.contract import Pull
from scool_ppl.train.questions import Params

_FUSED = {(device, dtype) for device in ("cpu", "cuda") for dtype in (torch.float32, torch.float64)}

MakeOptimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


Gradients = Callable[[Tensor, Batches], tuple[Tensor, Sequence[Tensor | None]]]
"""Inputs (..., B, ...) and a step -> losses (...) and a gradient for each leaf, None where a leaf has none."""


def by_backward(task: Task, forward: Callable[[Tensor], Tensor], leaves: Mapping[str, Tensor]) -> Gradients:
    """Of the weighted loss of a step, by one backward pass."""

    def found(inputs: Tensor, step: Batches) -> tuple[Tensor, Sequence[Tensor | None]]:
        loss = (task.losses(forward(inputs), step.targets) * step.weight).sum(-1)
        return loss.detach(), torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)

    return found


def descend(
    make: MakeOptimizer,
    gradients_of: Gradients,
    leaves: Mapping[str, Tensor],
    state: Params,
    inputs: Tensor,
    batches: Batches,
    pull: Pull | None,
) -> tuple[Tensor, Params]:
    """One optimiser step on the leaves per leading entry of batches (S, ..., B); the losses (S, ...) and the state."""
    optimizer = _loaded(make, leaves, state)
    shape, losses, together = batches.index.shape[1:], list[Tensor](), list[dict[str, Any]]()
    rooms = {} if pull is None else {name: torch.empty_like(leaves[name].detach()) for name in pull.centre}
    for number in range(len(batches.index)):
        step = batches.each(itemgetter(number))
        loss, gradients = gradients_of(
            inputs.index_select(0, step.index.flatten()).view(*shape, *inputs.shape[1:]), step
        )
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
            leaf.grad = None if gradient is None else as_laid_out(gradient, leaf)
            if pull is not None and name in pull.centre:
                leaf.grad = _pulled(gradient, leaf, pull.centre[name], pull.strength, rooms[name])
        # One kernel needs a dense gradient for every leaf, and what it keeps of every leaf or of none.
        dense = all(leaf.grad is not None and leaf.grad.layout == torch.strided for leaf in leaves.values())
        if dense and not losses and len({bool(optimizer.state.get(leaf)) for leaf in leaves.values()}) == 1:
            together = fused(optimizer)
        elif not dense:
            for group in together:
                group["fused"] = False
        optimizer.step()
        losses.append(loss)
    return torch.stack(losses), _kept(optimizer, leaves)


def _pulled(gradient: Tensor | None, leaf: Tensor, centre: Tensor, strength: Tensor, room: Tensor) -> Tensor:
    """gradient + strength (leaf - centre), computed in `room`, which is laid out as the leaf: at every step fresh memory
    of a large leaf's size costs more than the sums.
    """
    found = torch.sub(leaf.detach(), centre, out=room).mul_(
        strength.view(*strength.shape, *(1,) * (leaf.dim() - strength.dim()))
    )
    return found if gradient is None else found.add_(gradient)


def step_by(make: MakeOptimizer, leaves: Mapping[str, Tensor], state: Params, gradients: Params) -> Params:
    """One optimiser step on the leaves by gradients that are known; the state after it."""
    optimizer = _loaded(make, leaves, state)
    for name, leaf in leaves.items():
        leaf.grad = as_laid_out(gradients[name], leaf)
    optimizer.step()
    return _kept(optimizer, leaves)


def _loaded(make: MakeOptimizer, leaves: Mapping[str, Tensor], state: Params) -> torch.optim.Optimizer:
    """An optimiser of the leaves with this state, entry/name -> value."""
    optimizer = make(list(leaves.values()))
    for name, value in state.items():
        entry, _, owner = name.partition("/")
        optimizer.state[leaves[owner]][entry] = as_laid_out(value, leaves[owner])
    return optimizer


def _kept(optimizer: torch.optim.Optimizer, leaves: Mapping[str, Tensor]) -> Params:
    """What the optimiser has come to know of the leaves."""
    return {
        f"{entry}/{name}": torch.as_tensor(value).detach()
        for name, leaf in leaves.items()
        for entry, value in optimizer.state.get(leaf, {}).items()
        if value is not None
    }


def as_laid_out(value: Tensor, leaf: Tensor) -> Tensor:
    """What belongs to a leaf, its dimensions in the leaf's order in memory: a fused step takes that for granted."""
    if value.layout != torch.strided or value.shape != leaf.shape or value.stride() == leaf.stride():
        return value
    return torch.empty_like(leaf, requires_grad=False).copy_(value)


def fused(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Has the optimiser do its steps in one kernel, where torch has one and nobody has said how they are to be done.

    Returns the groups of parameters for which it does.
    """
    found = []
    for group in optimizer.param_groups:
        asked = group.get("foreach") is not None or group.get("differentiable") or group.get("capturable")
        kinds = {(leaf.device.type, leaf.dtype) for leaf in group["params"]}
        if "fused" in group and group["fused"] is None and not asked and kinds <= _FUSED:
            group["fused"] = True
            found.append(group)
    return found


def towards(pull: Pull | None, clients: Tensor | int) -> Pull | None:
    """The pull on some clients, or on one without the leading dimension."""
    if pull is None:
        return None
    return Pull({name: value[clients] for name, value in pull.centre.items()}, pull.strength[clients])
