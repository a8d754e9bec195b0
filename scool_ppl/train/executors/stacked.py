"""All clients at once: one vmapped forward, one backward and one optimiser on stacks of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scool_ppl.base.machine import threads
from scool_ppl.base.randomness import seeded
from scool_ppl.errors import InputError
from scool_ppl.tasks.base import Task
from scool_ppl.train.batches import Batches
from scool_ppl.train.contract import Pull
from scool_ppl.train.executors.descent import Gradients, MakeOptimizer, by_backward, descend, towards
from scool_ppl.train.executors.executor import STARTED, Then, is_convolutional, who_started, with_started
from scool_ppl.train.executors.layers import row_of_layers
from scool_ppl.train.executors.private import private_step
from scool_ppl.train.executors.workers import Workers, twin
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.train.questions import Params

_SMALL = 2**18  # parameters in the stack
_BLOCK = 2**20  # parameters of the clients that are trained together: with their gradients, what a cache holds


class Stacked:
    """All clients at once: `torch.func.vmap` forward, one backward, one `torch.optim` optimiser on the stacks."""

    def __init__(
        self,
        module: nn.Module,
        task: Task,
        optimizer: MakeOptimizer,
        random: bool,
        device: torch.device,
        privacy: Privacy | None = None,
    ) -> None:
        self.module, self.task, self.optimizer, self.privacy = twin(module), task, optimizer, privacy
        self.layout, self.random = optimizer_layout(optimizer, device), random
        self.trainable = [name for name, leaf in module.named_parameters() if leaf.requires_grad]
        self.convolutional = is_convolutional(module)
        self._workers = Workers(twin(module), torch.get_num_threads() if device.type == "cpu" else 1)
        self.size = sum(module.get_parameter(name).numel() for name in self.trainable)
        self.orders: dict[str, tuple[int, ...]] = {}
        """Of each parameter the order of dimensions in which its gradients lie in memory, where it is another."""

    def refusal(self, example: Tensor) -> str | None:
        """Why these networks cannot be stacked at all, if so: found by running two copies on the example (B, ...)."""
        if not self.layout.rowwise:
            return "the optimiser does not treat the rows of a tensor independently"
        pair = {name: torch.stack([self.module.get_parameter(name).detach()] * 2) for name in self.trainable}
        leaves = [value.requires_grad_() for value in pair.values()]
        try:
            with torch.enable_grad(), seeded(0, example.device):
                outputs = _vmapped(self.module, shared=True)(pair, example)
                found = torch.autograd.grad(outputs.sum(), leaves, allow_unused=True)
        except RuntimeError as problem:
            return f"torch.func.vmap cannot run this network ({str(problem).splitlines()[0]})"
        for name, gradient in zip(self.trainable, found, strict=True):
            if gradient is not None and not gradient.is_contiguous():
                strides = gradient.stride()
                order = sorted(range(gradient.dim()), key=strides.__getitem__, reverse=True)
                if order[0] == 0 and gradient.permute(order).is_contiguous():
                    self.orders[name] = tuple(order)
        return None

    def obstacle(self, batches: Batches) -> str | None:
        """Why this training cannot be done on stacks, if so."""
        active = batches.active
        steps = active.sum(1)
        if self.layout.counters and len(steps[steps > 0].unique()) > 1:
            return "the optimiser counts its steps once per tensor, and the clients have unequal numbers of batches"
        return None

    def train(
        self, params: Params, state: Params, inputs: Tensor, batches: Batches, pull: Pull | None, seeds: Sequence[int]
    ) -> tuple[Params, Params, Tensor]:
        params = {name: value.clone() for name, value in params.items()}
        return params, *self.advance(params, state, inputs, batches, pull, seeds)

    def advance(
        self, params: Params, state: Params, inputs: Tensor, batches: Batches, pull: Pull | None, seeds: Sequence[int]
    ) -> tuple[Params, Tensor]:
        obstacle = self.obstacle(batches)
        if obstacle:
            raise InputError(f"the stacked executor cannot train: {obstacle}; use executor='loop' or 'auto'")
        active = batches.active
        started = who_started(state, len(active)).clone().to(active.device)
        state = {name: value.clone() for name, value in state.items() if name != STARTED}
        losses = batches.weight.new_zeros(active.shape)
        with (
            torch.enable_grad(),
            self._enough_threads(params),
            seeded(seeds[0] if self.random else None, inputs.device),
        ):
            for start, stop in _runs(active):
                for rows in self._alike(active[:, start], started, state):
                    part = batches.steps(start, stop)
                    fresh = not started[rows[0]]
                    work = partial(self._advanced, params, {} if fresh else state, inputs, part, pull)
                    for step in self._workers.each(work, *self._blocks(rows, self._copies(part))):
                        step.write(params, state, losses[:, start:stop])
                    started[rows] = bool(state)
        return with_started(state, started), losses

    def _alike(self, moving: Tensor, started: Tensor, state: Params) -> list[Tensor]:
        """Those who move, in groups that can be advanced together: of those who have been absent for some rounds the
        counters differ, and a client's very first step creates its buffers.
        """
        kept = [value for name, value in state.items() if name.partition("/")[0] in self.layout.counters]
        columns = [started.double(), *(value.to(started.device).double() * started for value in kept)]
        _, group = torch.stack(columns, 1).unique(dim=0, return_inverse=True)
        parts = [((group == number) & moving).nonzero().flatten() for number in range(int(group.max()), -1, -1)]
        return [rows for rows in parts if len(rows)]

    def _copies(self, batches: Batches) -> int:
        """Gradients that are kept of each network at a step: of private training one for each image."""
        return 1 if self.privacy is None else batches.index.shape[-1]

    def _blocks(self, rows: Tensor, copies: int) -> tuple[Sequence[Tensor], int]:
        """The rows in pieces that a processor's cache holds, and by how many workers; those who draw noise, which is one
        stream, all at once.
        """
        pieces = -(-len(rows) * self.size * copies // _BLOCK)
        if self.random or rows.device.type != "cpu" or pieces == 1:
            return [rows], 1
        return rows.chunk(max(self._workers.count, pieces)), self._workers.count

    def _advanced(
        self,
        params: Params,
        state: Params,
        inputs: Tensor,
        batches: Batches,
        pull: Pull | None,
        module: nn.Module,
        rows: Tensor,
    ) -> Advanced:
        """Steps of the clients in `rows`; nobody else moves, and nothing is written yet."""
        module.train()
        part = batches.each(lambda field: field[rows].transpose(0, 1).contiguous())
        chosen = {name: value[rows] for name, value in params.items()}
        pull = towards(pull, rows)
        if pull is not None:
            pull = pull._replace(centre={name: self._laid(name, value) for name, value in pull.centre.items()})
        with torch.enable_grad():
            leaves = {name: self._laid(name, value).requires_grad_() for name, value in chosen.items()}
            mine = {name: self._own(name, value, rows) for name, value in state.items()}
            outputs = _each(module)

            def forward(inputs: Tensor) -> Tensor:
                return outputs({name: self._as_is(name, leaf) for name, leaf in leaves.items()}, inputs)

            gradients = by_backward(self.task, forward, leaves)
            if self.privacy is not None:
                gradients = self._private(self.privacy, module, leaves)
            losses, mine = descend(self.optimizer, gradients, leaves, mine, inputs, part, pull)
        return Advanced(
            rows,
            {name: self._as_is(name, leaf.detach()) for name, leaf in leaves.items()},
            {name: self._as_is(name.partition("/")[2], value) for name, value in mine.items()},
            losses.T,
        )

    def _private(self, privacy: Privacy, module: nn.Module, leaves: Params) -> Gradients:
        def found(inputs: Tensor, step: Batches) -> tuple[Tensor, Sequence[Tensor]]:
            params = {name: self._as_is(name, leaf.detach()) for name, leaf in leaves.items()}
            loss, gradients = private_step(privacy, self.task, module, params, inputs, step)
            return loss, [self._laid(name, value) for name, value in gradients.items()]

        return found

    def _laid(self, name: str, value: Tensor) -> Tensor:
        """A parameter, or what an optimiser keeps of it, laid out as its gradients are: steps read both in turn."""
        order = self.orders.get(name)
        return value if order is None or value.dim() != len(order) else value.permute(order).contiguous()

    def _as_is(self, name: str, value: Tensor) -> Tensor:
        """The same as the network has it."""
        order = self.orders.get(name)
        if order is None or value.dim() != len(order):
            return value
        return value.permute([order.index(place) for place in range(len(order))])

    def _own(self, name: str, value: Tensor, rows: Tensor) -> Tensor:
        value, (entry, _, owner) = value[rows.to(value.device)], name.partition("/")
        return value[0] if entry in self.layout.counters else self._laid(owner, value)

    def together(self, count: int) -> int:
        """All of them, in one operation."""
        return count

    def forward(self, params: Params, inputs: Tensor) -> Tensor:
        self.module.eval()
        with self._enough_threads(params):
            return _each(self.module)(params, inputs)

    def on_common(self, params: Params, inputs: Tensor, then: Then, block: int) -> Tensor:
        grad, workers = torch.is_grad_enabled(), 1 if self.random else self._workers.count

        def work(module: nn.Module, which: slice) -> Tensor:
            own = {name: value[which] for name, value in params.items()}
            with torch.set_grad_enabled(grad):
                return then(_vmapped(module.eval(), shared=True)(own, inputs), which)

        with self._enough_threads(params):
            return torch.cat(self._workers.each(work, self._pieces(params, block, workers), workers))

    def _pieces(self, params: Params, most: int, workers: int) -> list[slice]:
        """The networks in pieces of at most `most`, as many for every worker; few small ones in a single piece."""
        count = len(next(iter(params.values())))
        pieces = -(-count // most)
        if pieces > 1 or not self._small(params):
            pieces = min(count, -(-pieces // workers) * workers)
        return [slice(*ends) for ends in pairwise(count * number // pieces for number in range(pieces + 1))]

    def _enough_threads(self, params: Params) -> AbstractContextManager[None]:
        """One thread for small stacks: more gain little there, and stall at every barrier when cores are shared."""
        return threads(1 if self._small(params) else None)

    def _small(self, params: Params) -> bool:
        return not self.convolutional and sum(value.numel() for value in params.values()) < _SMALL


class Advanced(NamedTuple):
    """Where some clients' steps led."""

    rows: Tensor
    params: Params
    state: Params
    losses: Tensor
    """(rows, S)"""

    def write(self, params: Params, state: Params, losses: Tensor) -> None:
        """Into what all clients have."""
        for name, value in self.params.items():
            params[name][self.rows] = value
        for name, value in self.state.items():
            if name not in state:
                state[name] = value.new_zeros(len(losses), *value.shape[1:])
            state[name][self.rows.to(value.device)] = value
        losses[self.rows] = self.losses


def _each(module: nn.Module) -> Callable[[Params, Tensor], Tensor]:
    """The module with each of several networks' parameters, on inputs of its own."""
    return row_of_layers(module) or _vmapped(module, shared=False)


def _vmapped(module: nn.Module, shared: bool) -> Callable[[Params, Tensor], Tensor]:
    """The module with each of several networks' parameters, on inputs of its own or on `shared` ones; what is frozen is
    the module's, and is not copied.
    """

    def call(params: Params, inputs: Tensor) -> Tensor:
        return torch.func.functional_call(module, params, (inputs,))

    return torch.func.vmap(call, in_dims=(0, None if shared else 0), randomness="different")


def _runs(active: Tensor) -> Iterator[tuple[int, int]]:
    """Maximal runs [start, stop) of steps (columns) in which the same clients move."""
    steps = active.shape[1]
    if steps == 0:
        return
    changes = (active[:, 1:] != active[:, :-1]).any(0).nonzero().flatten() + 1
    edges = [0, *changes.tolist(), steps]
    yield from pairwise(edges)


class OptimizerLayout(NamedTuple):
    """What an optimiser keeps: `counters`, its entries that are one number per tensor; `rowwise`, may it be stacked?"""

    counters: frozenset[str]
    rowwise: bool


def optimizer_layout(make: MakeOptimizer, device: torch.device) -> OptimizerLayout:
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
        return OptimizerLayout(frozenset(), rowwise=False)
    sizes = {name: torch.as_tensor(entry).dim() for name, entry in state.items() if entry is not None}
    rowwise = torch.allclose(stacked, torch.stack(alone)) and all(size in (0, 3) for size in sizes.values())
    return OptimizerLayout(frozenset(name for name, size in sizes.items() if size == 0), rowwise)
