"""Steps of an optimiser on the parameters of one or of many networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from scool_ppl.tasks.base import Task
from scool_ppl.train.batches import Batches
from scool_ppl.train.contract import Pull
from scool_ppl.train.questions import Params

MakeOptimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


def descend(
    task: Task,
    make: MakeOptimizer,
    forward: Callable[[Tensor], Tensor],
    leaves: Mapping[str, Tensor],
    state: Params,
    inputs: Tensor,
    batches: Batches,
    pull: Pull | None,
) -> tuple[Tensor, Params]:
    """One optimiser step on the leaves per leading entry of batches (S, ..., B); the losses (S, ...) and the state."""
    optimizer = make(list(leaves.values()))
    for name, value in state.items():
        entry, _, owner = name.partition("/")
        optimizer.state[leaves[owner]][entry] = value
    shape, losses = batches.index.shape[1:], []
    for index, weight, targets in zip(*batches, strict=True):
        outputs = forward(inputs.index_select(0, index.flatten()).view(*shape, *inputs.shape[1:]))
        loss = (task.losses(outputs, targets) * weight).sum(-1)
        gradients = torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
            leaf.grad = gradient
            if pull is not None:
                strength = pull.strength.view(*pull.strength.shape, *(1,) * (leaf.dim() - pull.strength.dim()))
                proximal = strength * (leaf.detach() - pull.centre[name])
                leaf.grad = proximal if gradient is None else gradient + proximal
        optimizer.step()
        losses.append(loss.detach())
    after = {
        f"{entry}/{name}": torch.as_tensor(value).detach()
        for name, leaf in leaves.items()
        for entry, value in optimizer.state.get(leaf, {}).items()
        if value is not None
    }
    return torch.stack(losses), after


def towards(pull: Pull | None, clients: Tensor | int) -> Pull | None:
    """The pull on some clients, or on one without the leading dimension."""
    if pull is None:
        return None
    return Pull({name: value[clients] for name, value in pull.centre.items()}, pull.strength[clients])
