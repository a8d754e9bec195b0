"""Training on others' images, where a part of each network is its client's own: all clients take their steps together."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

import torch
from torch import Tensor

from scool_ppl.train.batches import Batches, Probe
from scool_ppl.train.contract import Coupling, Pull
from scool_ppl.train.executors.executor import stacked_states, unstacked_states
from scool_ppl.train.forward import Forward
from scool_ppl.train.questions import Params

Step = Callable[[Params, Params, Params], tuple[Params, Params]]
"""One client's network, its optimiser's state and a gradient -> the first two after a step."""


def by_shares(
    forward: Forward,
    step: Step,
    params: Params,
    state: Params,
    drawn: Batches,
    table: Batches,
    pull: Pull | Coupling | None = None,
) -> tuple[Params, Params, Tensor]:
    """Everybody descends J(u, v) = sum_ij w_ij L(D_j; u_i, v_j), D_j the batches `drawn` by j, u what cooperates and v what
    is private: whoever's images they are, its own private part sees them, and learns from them.

    table: whose which batch counts how much, see `batches.batch_table`. pull: what is added to every step of what
    cooperates. Parameters, state and losses (K, S) of each i.
    """
    count = len(table.weight)
    losses, states = table.weight.new_zeros(count, table.weight.shape[1]), unstacked_states(state, count)
    for number in range(table.weight.shape[1]):
        now = table.each(itemgetter((slice(None), number)))
        gradients, losses[:, number] = _gradients(forward, params, drawn, now)
        if pull is not None:
            held = pull.held(forward.parts.cooperating(params)) if isinstance(pull, Coupling) else pull
            for name, centre in held.centre.items():
                strength = held.strength.to(centre).reshape(-1, *[1] * (centre.dim() - 1))
                gradients[name] = gradients[name] + strength * (params[name] - centre)
        moved = {name: value.clone() for name, value in params.items()}
        for i in (now.weight != 0).any(-1).nonzero().flatten().tolist():
            own, slope = ({name: value[i] for name, value in of.items()} for of in (params, gradients))
            after, states[i] = step(own, states[i], slope)
            for name, value in after.items():
                moved[name][i] = value
        params = moved
    return params, stacked_states(states), losses


def _gradients(forward: Forward, params: Params, drawn: Batches, table: Batches) -> tuple[Params, Tensor]:
    """The gradient of J in all networks at one step, and each network's share of it (K,)."""
    users, columns = (table.weight != 0).nonzero(as_tuple=True)
    owners, numbers, weights = (field[users, columns] for field in (table.index, table.targets, table.weight))
    index, targets, weight = (field[owners, numbers] for field in (drawn.index, drawn.targets, drawn.weight))
    leaves = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
    with torch.enable_grad():
        networks = forward.parts.completed(leaves, users, owners)
        each = forward.own_loss(networks, Probe(index, targets, weight != 0)) * weights.to(forward.inputs.device)
        found = torch.autograd.grad(each.sum(), list(leaves.values()), allow_unused=True)
    gradients = {
        name: torch.zeros_like(leaf) if slope is None else slope
        for (name, leaf), slope in zip(leaves.items(), found, strict=True)
    }
    share = table.weight.new_zeros(len(table.weight)).index_add_(0, users, each.detach().cpu().to(table.weight))
    return gradients, share
