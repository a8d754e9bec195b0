"""What an executor is, and what the two of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.stacks import per_client
from scool_ppl.tasks.base import Task
from scool_ppl.train.batches import Batches
from scool_ppl.train.contract import Pull
from scool_ppl.train.networks.parts import EVERYTHING, Parts
from scool_ppl.train.questions import Params

STARTED = "started"

Then = Callable[[Tensor, slice], Tensor]
"""then(outputs, which)"""


class Executor(Protocol):
    """Trains and evaluates K networks on a task."""

    task: Task

    def train(
        self, params: Params, state: Params, inputs: Tensor, batches: Batches, pull: Pull | None, seeds: Sequence[int]
    ) -> tuple[Params, Params, Tensor]:
        """Parameters and optimiser state after the batches, and losses (K, S); `seeds` feed dropout, one a client.

        What it is given stays as it is.
        """
        ...

    def advance(
        self, params: Params, state: Params, inputs: Tensor, batches: Batches, pull: Pull | None, seeds: Sequence[int]
    ) -> tuple[Params, Tensor]:
        """The same, but the parameters are changed where they are; optimiser state and losses after the batches."""
        ...

    def together(self, count: int) -> int:
        """How many of `count` networks are at work in one operation."""
        ...

    def forward(self, params: Params, inputs: Tensor) -> Tensor:
        """Outputs (K, B, C) of every network on its own inputs (K, B, ...)."""
        ...

    def on_common(self, params: Params, inputs: Tensor, then: Then, block: int) -> Tensor:
        """All networks on the same inputs (B, ...): what `then` makes of the outputs (k, B, C) of the networks `which`,
        at most `block` of them at a time, (K, ...).
        """
        ...


def mixed(
    executor: Executor, params: Params, inputs: Tensor, weights: Tensor, peers: Peers, parts: Parts = EVERYTHING
) -> Tensor:
    """Outputs (K, B, ...) that predict as sum_j w_ij p(y | h_theta_j(x)), x of client i (K, B, ...); rows of w normalised;
    each network with what is private of client i.

    For classes log sum_j w_ij softmax h_theta_j(x), for regression sum_j w_ij h_theta_j(x).

    A column of candidates at a time, those that nobody uses left out; a client without any weight predicts alone.
    """
    clients = torch.arange(len(weights))
    weights = torch.where(peers.mask, weights, torch.zeros_like(weights))
    total = weights.sum(1, keepdim=True)
    share = weights / total.clamp(min=1e-30)
    alone = (total[:, 0] == 0).double()
    columns = [(share[:, c], peers.columns()[:, c].expand(len(weights))) for c in range(weights.shape[1])]
    predicted: Tensor | float = 0.0
    for part, sender in [(alone, clients), *columns]:
        if float(part.max()) > 1e-6:
            models = parts.completed(params, sender, clients)
            each = executor.task.predictive(executor.forward(models, inputs))
            predicted = predicted + per_client(part.to(each), each) * each
    return executor.task.from_predictive(torch.as_tensor(predicted))


def is_convolutional(module: nn.Module) -> bool:
    return any(isinstance(part, nn.Conv2d) for part in module.modules())


def who_started(state: Params, count: int) -> Tensor:
    """Which clients have optimiser state, (K,) bool; it is stored only while some have none."""
    return state.get(STARTED, torch.full((count,), bool(state)))


def stacked_states(states: Sequence[Params]) -> Params:
    """What the optimisers of all clients keep, with a note of who has nothing."""
    started = torch.tensor([bool(mine) for mine in states])
    after = {
        name: torch.stack([mine.get(name, torch.zeros_like(value)) for mine in states])
        for name, value in max(states, key=len).items()
    }
    return with_started(after, started)


def unstacked_states(state: Params, count: int) -> list[Params]:
    """The same client by client."""
    started = who_started(state, count)
    kept = {name: value for name, value in state.items() if name != STARTED}
    return [{name: value[i].clone() for name, value in kept.items()} if started[i] else {} for i in range(count)]


def with_started(state: Params, started: Tensor) -> Params:
    """The state with a note of who has none, if anybody."""
    return state if not state or bool(started.all()) else {**state, STARTED: started.cpu()}
