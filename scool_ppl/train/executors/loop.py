"""One client at a time, on a processor one worker thread a core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from scool_ppl.base.machine import threads
from scool_ppl.base.randomness import seeded
from scool_ppl.tasks.base import Task
from scool_ppl.train.batches import Batches
from scool_ppl.train.contract import Pull
from scool_ppl.train.executors.descent import Gradients, MakeOptimizer, by_backward, descend, towards
from scool_ppl.train.executors.executor import Then, is_convolutional, stacked_states, unstacked_states
from scool_ppl.train.executors.private import private_step
from scool_ppl.train.executors.workers import Workers, twin
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.train.questions import Params

_ALIGNED = 64
"""Bytes of memory that a processor reads at once."""
_LARGE = 2**16
"""A parameter of so many numbers is trained where it lies, as to copy it takes longer than a small step."""
_SMALL = 2**18
"""Parameters of a network whose steps are so short that a second worker thread only waits for Python's lock."""


class Loop:
    """One client at a time on its slices, with its own `torch.optim` optimiser; on a CPU one worker thread per core, but a
    single one to train small networks.
    """

    def __init__(
        self, module: nn.Module, task: Task, optimizer: MakeOptimizer, random: bool, privacy: Privacy | None = None
    ) -> None:
        self.task, self.optimizer, self.random, self.privacy = task, optimizer, random, privacy
        leaves = [leaf for leaf in module.parameters() if leaf.requires_grad]
        # Threads share one global generator, so noisy networks run in this thread only.
        serial = random or leaves[0].device.type != "cpu"
        self.workers = 1 if serial else torch.get_num_threads()
        self.small = not is_convolutional(module) and sum(leaf.numel() for leaf in leaves) < _SMALL
        self.format = torch.channels_last if is_convolutional(module) else torch.preserve_format
        self._pool = Workers(_laid_out(twin(module), self.format), self.workers)

    def train(
        self, params: Params, state: Params, inputs: Tensor, batches: Batches, pull: Pull | None, seeds: Sequence[int]
    ) -> tuple[Params, Params, Tensor]:
        params = {name: value.clone() for name, value in params.items()}
        return params, *self.advance(params, state, inputs, batches, pull, seeds)

    def advance(
        self, params: Params, state: Params, inputs: Tensor, batches: Batches, pull: Pull | None, seeds: Sequence[int]
    ) -> tuple[Params, Tensor]:
        active = batches.active
        before = unstacked_states(state, len(active))
        losses = batches.weight.new_zeros(active.shape)

        def work(module: nn.Module, client: int) -> Params:
            part = batches.each(lambda field: field[client][active[client]])
            mine = before[client]
            if len(part.index) > 0:
                own = {name: value[client] for name, value in params.items()}
                with torch.enable_grad(), seeded(seeds[client] if self.random else None, inputs.device):
                    lost, mine = self._advance(module, own, mine, inputs, part, towards(pull, client))
                losses[client, active[client]] = lost
            return mine

        alone = self.small and self.workers > 1
        with threads(1 if alone else None):
            states = self._pool.each(work, range(len(active)), 1 if alone else self.workers)
        return stacked_states(states), losses

    def _advance(
        self, module: nn.Module, own: Params, state: Params, inputs: Tensor, batches: Batches, pull: Pull | None
    ) -> tuple[Tensor, Params]:
        """Steps of one client, written into `own`; its losses (S,) and optimiser state."""
        module.train()
        leaves = {name: module.get_parameter(name) for name in own}
        forward = lambda x: module(self._ready(x))  # noqa: E731
        gradients = by_backward(self.task, forward, leaves)
        if self.privacy is not None:
            gradients = self._private(self.privacy, module, leaves)
        with _wearing(leaves, own):
            losses, state = descend(self.optimizer, gradients, leaves, state, inputs, batches, pull)
        return losses, state

    def _private(self, privacy: Privacy, module: nn.Module, leaves: Mapping[str, Tensor]) -> Gradients:
        def found(inputs: Tensor, step: Batches) -> tuple[Tensor, Sequence[Tensor]]:
            params = {name: leaf.detach() for name, leaf in leaves.items()}
            loss, gradients = private_step(privacy, self.task, module, params, inputs, step)
            return loss, [*gradients.values()]

        return found

    def _ready(self, inputs: Tensor) -> Tensor:
        return inputs.contiguous(memory_format=self.format) if inputs.dim() == 4 else inputs

    def together(self, count: int) -> int:
        """One network after the other."""
        return 1

    def forward(self, params: Params, inputs: Tensor) -> Tensor:
        return torch.stack(self._evaluated(params, lambda client: self._ready(inputs[client]), lambda out, client: out))

    def on_common(self, params: Params, inputs: Tensor, then: Then, block: int) -> Tensor:
        ready = self._ready(inputs)
        each = self._evaluated(
            params, lambda client: ready, lambda out, client: then(out[None], slice(client, client + 1))
        )
        return torch.cat(each)

    def _evaluated(
        self, params: Params, inputs: Callable[[int], Tensor], then: Callable[[Tensor, int], Tensor]
    ) -> list[Tensor]:
        """What `then` makes of the outputs of each client's network on its inputs."""
        grad = torch.is_grad_enabled()
        # Taken apart once: backward through an index of a stack fills a whole stack for each network, through unbind one.
        apart = {name: value.unbind(0) for name, value in params.items()}

        def work(module: nn.Module, client: int) -> Tensor:
            own = {name: values[client] for name, values in apart.items()}
            quiet = module.eval() if module.training else module
            with torch.set_grad_enabled(grad):
                return then(torch.func.functional_call(quiet, own, (inputs(client),)), client)

        return self._pool.each(work, range(len(next(iter(params.values())))), self.workers)


@contextmanager
def _wearing(leaves: Mapping[str, nn.Parameter], own: Params) -> Iterator[None]:
    """The leaves have the client's numbers, and what becomes of these is the client's.

    A large one is trained where it lies: in lock step, where everybody takes a step in turn, to copy it there and back
    costs as much as the optimiser's step.
    """
    memory = {name: leaf.data for name, leaf in leaves.items()}
    in_place = {name for name, value in memory.items() if _lies_alike(own[name], value)}
    for name, leaf in leaves.items():
        if name in in_place:
            leaf.data = own[name]
        else:
            leaf.data.copy_(own[name])
    try:
        yield
    finally:
        for name, leaf in leaves.items():
            if name in in_place:
                leaf.data = memory[name]
            else:
                own[name].copy_(leaf.data)
            leaf.grad = None


def _lies_alike(value: Tensor, other: Tensor) -> bool:
    """Can a large one stand for the other, with the same products to the last bit? These depend on where memory begins."""
    aligned = (value.data_ptr() - other.data_ptr()) % _ALIGNED == 0
    return value.numel() >= _LARGE and value.stride() == other.stride() and aligned


def _laid_out(module: nn.Module, format: torch.memory_format) -> nn.Module:
    """The module with its own parameters in this order in memory; what is frozen is others', too, and stays as it is."""
    for leaf in module.parameters():
        if leaf.requires_grad and leaf.dim() == 4:
            leaf.data = leaf.data.to(memory_format=format)
    return module
