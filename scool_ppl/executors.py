"""How K clients are run: all at once as stacked tensors, or one by one on worker threads; the results are the same."""

from __future__ import annotations

import copy
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from scool_ppl.batches import Batches, MakeOptimizer, Params, Pull, descend, towards
from scool_ppl.candidates import Peers
from scool_ppl.errors import InputError
from scool_ppl.measured import Layout, threads
from scool_ppl.networks import seeded
from scool_ppl.tasks import Task

Result = TypeVar("Result")

_STARTED = "started"
_SMALL = 2**20  # parameters in the stack


class Executor(Protocol):
    """Trains and evaluates K networks on a task; neither changes what it is given."""

    task: Task

    def train(
        self, params: Params, state: Params, inputs: Tensor, batches: Batches, pull: Pull | None, seeds: Sequence[int]
    ) -> tuple[Params, Params, Tensor]:
        """Parameters and optimiser state after the batches, and losses (K, S); `seeds` feed dropout, one a client."""
        ...

    def forward(self, params: Params, inputs: Tensor, *, shared: bool = False) -> Tensor:
        """Outputs (K, B, C) of every network on its own inputs (K, B, ...), or on common ones (B, ...) if shared."""
        ...


class Stacked:
    """All clients at once: `torch.func.vmap` forward, one backward, one `torch.optim` optimiser on the stacks."""

    def __init__(self, module: nn.Module, task: Task, optimizer: MakeOptimizer, layout: Layout, random: bool) -> None:
        self.module, self.task, self.optimizer = copy.deepcopy(module), task, optimizer
        self.layout, self.random = layout, random
        self.trainable = [name for name, leaf in module.named_parameters() if leaf.requires_grad]
        self.convolutional = _is_convolutional(module)

    def refusal(self, example: Tensor) -> str | None:
        """Why these networks cannot be stacked at all, if so: found by running two copies on the example (B, ...)."""
        if not self.layout.rowwise:
            return "the optimiser does not treat the rows of a tensor independently"
        pair = {name: torch.stack([value.detach()] * 2) for name, value in self.module.named_parameters()}
        leaves = [pair[name].requires_grad_() for name in self.trainable]
        try:
            with torch.enable_grad(), seeded(0, example.device):
                outputs = self._vmapped(shared=True)(pair, example)
                torch.autograd.grad(outputs.sum(), leaves, allow_unused=True)
        except RuntimeError as problem:
            return f"torch.func.vmap cannot run this network ({str(problem).splitlines()[0]})"
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
        obstacle = self.obstacle(batches)
        if obstacle:
            raise InputError(f"the stacked executor cannot train: {obstacle}; use executor='loop' or 'auto'")
        params, active = {name: value.clone() for name, value in params.items()}, batches.active
        started = who_started(state, len(active)).clone().to(active.device)
        state = {name: value.clone() for name, value in state.items() if name != _STARTED}
        losses = batches.weight.new_zeros(active.shape)
        self.module.train()
        with (
            torch.enable_grad(),
            self._enough_threads(params),
            seeded(seeds[0] if self.random else None, inputs.device),
        ):
            for start, stop in _runs(active):
                for rows in self._alike(active[:, start], started, state):
                    part = Batches(*(field[rows, start:stop].transpose(0, 1).contiguous() for field in batches))
                    fresh = not started[rows[0]]
                    losses[rows, start:stop] = self._advance(params, state, rows, fresh, inputs, part, pull).T
                    started[rows] = bool(state)
        return params, with_started(state, started), losses

    def _alike(self, moving: Tensor, started: Tensor, state: Params) -> list[Tensor]:
        """Those who move, in groups that can be advanced together: of those who have been absent for some rounds the
        counters differ, and a client's very first step creates its buffers.
        """
        kept = [value for name, value in state.items() if name.partition("/")[0] in self.layout.counters]
        columns = [started.double(), *(value.to(started.device).double() * started for value in kept)]
        _, group = torch.stack(columns, 1).unique(dim=0, return_inverse=True)
        parts = [((group == number) & moving).nonzero().flatten() for number in range(int(group.max()), -1, -1)]
        return [rows for rows in parts if len(rows)]

    def _advance(
        self,
        params: Params,
        state: Params,
        rows: Tensor,
        fresh: bool,
        inputs: Tensor,
        batches: Batches,
        pull: Pull | None,
    ) -> Tensor:
        """Steps of the clients in `rows`, written into `params` and `state`; nobody else moves. Losses (S, rows)."""
        chosen = {name: value[rows] for name, value in params.items()}
        leaves = {name: chosen[name].requires_grad_() for name in self.trainable}
        mine = {} if fresh else {name: self._own(name, value, rows) for name, value in state.items()}
        forward = partial(self._vmapped(shared=False), chosen)
        losses, mine = descend(self.task, self.optimizer, forward, leaves, mine, inputs, batches, towards(pull, rows))
        for name, leaf in leaves.items():
            params[name][rows] = leaf.detach()
        for name, value in mine.items():
            if name not in state:
                state[name] = value.new_zeros(len(next(iter(params.values()))), *value.shape[1:])
            state[name][rows.to(value.device)] = value
        return losses

    def _own(self, name: str, value: Tensor, rows: Tensor) -> Tensor:
        value = value[rows.to(value.device)]
        return value[0] if name.partition("/")[0] in self.layout.counters else value

    def _vmapped(self, shared: bool) -> Callable[[Params, Tensor], Tensor]:
        def call(params: Params, inputs: Tensor) -> Tensor:
            return torch.func.functional_call(self.module, params, (inputs,))

        return torch.func.vmap(call, in_dims=(0, None if shared else 0), randomness="different")

    def forward(self, params: Params, inputs: Tensor, *, shared: bool = False) -> Tensor:
        self.module.eval()
        with self._enough_threads(params):
            return self._vmapped(shared)(params, inputs)

    def _enough_threads(self, params: Params) -> AbstractContextManager[None]:
        """One thread for small stacks: more gain little there, and stall at every barrier when cores are shared."""
        small = not self.convolutional and sum(value.numel() for value in params.values()) < _SMALL
        return threads(1 if small else None)


class Loop:
    """One client at a time on its slices, with its own `torch.optim` optimiser; on a CPU one worker thread per core."""

    def __init__(self, module: nn.Module, task: Task, optimizer: MakeOptimizer, random: bool) -> None:
        self.task, self.optimizer, self.random = task, optimizer, random
        leaves = list(module.parameters())
        # Threads share one global generator, so noisy networks run in this thread only.
        serial = random or leaves[0].device.type != "cpu"
        self.workers = 1 if serial else torch.get_num_threads()
        self.format = torch.channels_last if _is_convolutional(module) else torch.preserve_format
        self.modules: queue.SimpleQueue[nn.Module] = queue.SimpleQueue()
        for _ in range(self.workers):
            self.modules.put(copy.deepcopy(module).to(memory_format=self.format))

    def train(
        self, params: Params, state: Params, inputs: Tensor, batches: Batches, pull: Pull | None, seeds: Sequence[int]
    ) -> tuple[Params, Params, Tensor]:
        params, active = {name: value.clone() for name, value in params.items()}, batches.active
        started = who_started(state, len(active))
        before = {name: value for name, value in state.items() if name != _STARTED}
        losses = batches.weight.new_zeros(active.shape)

        def work(module: nn.Module, client: int) -> Params:
            part = Batches(*(field[client][active[client]] for field in batches))
            mine = {name: value[client].clone() for name, value in before.items()} if started[client] else {}
            if len(part.index) > 0:
                own = {name: value[client] for name, value in params.items()}
                with torch.enable_grad(), seeded(seeds[client] if self.random else None, inputs.device):
                    lost, mine = self._advance(module, own, mine, inputs, part, towards(pull, client))
                losses[client, active[client]] = lost
            return mine

        states = self._each(work, len(active))
        started = torch.tensor([bool(mine) for mine in states])
        after = {
            name: torch.stack([mine.get(name, torch.zeros_like(value)) for mine in states])
            for name, value in max(states, key=len).items()
        }
        return params, with_started(after, started), losses

    def _advance(
        self, module: nn.Module, own: Params, state: Params, inputs: Tensor, batches: Batches, pull: Pull | None
    ) -> tuple[Tensor, Params]:
        """Steps of one client, written into `own`; its losses (S,) and optimiser state."""
        module.train()
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(own[name])
        leaves = {name: leaf for name, leaf in module.named_parameters() if leaf.requires_grad}
        forward = lambda x: module(self._ready(x))  # noqa: E731
        losses, state = descend(self.task, self.optimizer, forward, leaves, state, inputs, batches, pull)
        for name, leaf in leaves.items():
            own[name].copy_(leaf.detach())
            leaf.grad = None
        return losses, state

    def _ready(self, inputs: Tensor) -> Tensor:
        return inputs.contiguous(memory_format=self.format) if inputs.dim() == 4 else inputs

    def forward(self, params: Params, inputs: Tensor, *, shared: bool = False) -> Tensor:
        grad = torch.is_grad_enabled()

        def work(module: nn.Module, client: int) -> Tensor:
            own = {name: value[client] for name, value in params.items()}
            with torch.set_grad_enabled(grad):
                x = self._ready(inputs if shared else inputs[client])
                return torch.func.functional_call(module.eval(), own, (x,))

        return torch.stack(self._each(work, len(next(iter(params.values())))))

    def _each(self, work: Callable[[nn.Module, int], Result], count: int) -> list[Result]:
        """work(module, client) for every client, each worker with a module of its own."""

        def borrow(client: int) -> Result:
            module = self.modules.get()
            try:
                return work(module, client)
            finally:
                self.modules.put(module)

        if min(self.workers, count) == 1:
            return [borrow(client) for client in range(count)]
        workers = min(self.workers, count)
        with threads(None), ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(borrow, range(count)))


def mixed(executor: Executor, params: Params, inputs: Tensor, weights: Tensor, peers: Peers) -> Tensor:
    """Outputs (K, B, ...) that predict as sum_j w_ij p(y | h_theta_j(x)), x of client i (K, B, ...); rows of w normalised.

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
            models = {name: value[sender.to(value.device)] for name, value in params.items()}
            each = executor.task.predictive(executor.forward(models, inputs))
            predicted = predicted + part.to(each).view(-1, *(1,) * (each.dim() - 1)) * each
    return executor.task.from_predictive(torch.as_tensor(predicted))


def _is_convolutional(module: nn.Module) -> bool:
    return any(isinstance(part, nn.Conv2d) for part in module.modules())


def who_started(state: Params, count: int) -> Tensor:
    """Which clients have optimiser state, (K,) bool; it is stored only while some have none."""
    return state.get(_STARTED, torch.full((count,), bool(state)))


def with_started(state: Params, started: Tensor) -> Params:
    """The state with a note of who has none, if anybody."""
    return state if not state or bool(started.all()) else {**state, _STARTED: started.cpu()}


def _runs(active: Tensor) -> Iterator[tuple[int, int]]:
    """Maximal runs [start, stop) of steps (columns) in which the same clients move."""
    steps = active.shape[1]
    if steps == 0:
        return
    changes = (active[:, 1:] != active[:, :-1]).any(0).nonzero().flatten() + 1
    edges = [0, *changes.tolist(), steps]
    yield from pairwise(edges)
