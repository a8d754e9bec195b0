"""Trainers: K networks of one architecture as stacked tensors, how they begin and how they are trained."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from scool_ppl.base.arguments import check_kind, whole
from scool_ppl.base.randomness import key, seeded
from scool_ppl.errors import InputError, unknown
from scool_ppl.train.batches import Batches, shuffled
from scool_ppl.train.contract import Params, Pull, Trained
from scool_ppl.train.examine import examine
from scool_ppl.train.executors.choosing import fastest, optimizer_layout
from scool_ppl.train.executors.descent import MakeOptimizer
from scool_ppl.train.executors.loop import Loop
from scool_ppl.train.executors.stacked import Stacked
from scool_ppl.train.networks import network_of

if TYPE_CHECKING:
    from scool_ppl.data.federation import Federation


EXECUTORS = ("auto", "stacked", "loop")


class Trainers:
    """What `Clients` are made of: networks, optimiser and executor, for the data of a federation."""

    def __init__(
        self,
        federation: Federation,
        network: Callable[[], nn.Module] | None = None,
        *,
        optimizer: MakeOptimizer = partial(torch.optim.SGD, lr=0.1, weight_decay=5e-4),
        batch_size: int = 10,
        probe_size: int = 100,
        executor: str = "auto",
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        common_start: bool = True,
    ) -> None:
        if executor not in EXECUTORS:
            raise unknown("executor", executor, EXECUTORS)
        if not whole(batch_size, probe_size):
            raise InputError(
                f"batch_size={batch_size}, probe_size={probe_size}: expected whole numbers of at least 1 each"
            )
        _check_parts(federation, network, optimizer, device, dtype)
        self.batch_size, self.probe_size, self.common_start = batch_size, probe_size, common_start
        self.device, self.optimizer = torch.device(device), optimizer
        self.network, self._task = network or network_of(federation), federation.task
        self._dtype = federation.inputs.dtype if dtype is None and federation.inputs.is_floating_point() else dtype
        self._seat(federation)
        output_shape = self._task.output_shape(federation.inputs.shape[1:])
        self._module, random, self._footprint = examine(self.network, self.inputs[:2], output_shape, self._dtype)
        self._stacked = Stacked(self._module, self._task, optimizer, optimizer_layout(optimizer, self.device), random)
        self._loop = Loop(self._module, self._task, optimizer, random)
        self._requested = self.executor_name = executor
        refusal = self._stacked.refusal(self.inputs[:2]) if executor != "loop" else None
        if refusal and executor == "stacked":
            raise InputError(f"executor='stacked' cannot be used: {refusal}; use executor='loop' or 'auto'")
        if refusal:
            warnings.warn(f"{refusal}: clients run one by one", stacklevel=2)
            self.executor_name = "loop"
        elif executor == "auto" and random:
            self.executor_name = "stacked"

    def _seat(self, federation: Federation) -> None:
        self.federation, self.names, self.num_clients = federation, tuple(federation.names), federation.num_clients
        tokens = not federation.inputs.is_floating_point()
        self.inputs = federation.inputs.to(self.device, None if tokens else self._dtype)
        self._own = self._task.own_outputs(federation.all_counts()).to(self.device)

    def on(self, federation: Federation) -> Self:
        """The same networks, optimiser and executor for the clients of another federation, with data of the same kind."""
        ours, theirs = self.federation.kind, federation.kind
        if ours != theirs:
            raise InputError(f"data are {theirs}, the networks are for {ours}; make new Clients")
        moved = copy.copy(self)
        moved._seat(federation)
        return moved

    def settle(self, executor: str) -> None:
        """Use the executor that an earlier run chose, instead of measuring: its rounding is that of the run."""
        if executor not in EXECUTORS:
            raise unknown("executor", executor, EXECUTORS)
        if self._requested == "auto":
            self.executor_name = self.executor_name if executor == "auto" else executor
        elif executor != self.executor_name:
            warnings.warn(
                f"the run used the executor '{executor}', these clients use '{self.executor_name}': "
                "the last bits may differ",
                stacklevel=2,
            )

    @property
    def behaviour(self) -> str:
        """What the clients do beside what they are asked; a run can only go on with clients who do the same."""
        return "as asked"

    @property
    def bytes_per_model(self) -> int:
        """Size of one client's parameters in bytes."""
        return sum(leaf.numel() * leaf.element_size() for leaf in self._module.parameters())

    @property
    def chance_loss(self) -> float:
        """The loss of knowing nothing: log C for C classes."""
        return self._task.chance

    def init(self, seed: int) -> Params:
        """theta^0: the same for all clients, or with common_start=False one per client, keyed by its name."""
        if self.common_start:
            one = self._fresh(key(seed, "network"))
            return {name: value.expand(self.num_clients, *value.shape).clone() for name, value in one.items()}
        each = [self._fresh(key(seed, "network", name)) for name in self.names]
        return {name: torch.stack([params[name] for params in each]) for name in each[0]}

    def _fresh(self, seed: int) -> Params:
        with seeded(seed, self.device):
            module = self.network()
        return {name: leaf.detach() for name, leaf in module.to(self.device, self._dtype).named_parameters()}

    def train(
        self,
        params: Params,
        optimizer_state: Params | None,
        *,
        epochs: int,
        seed: int,
        round: int,
        pull: Pull | None = None,
        steps: int | None = None,
        batches: Batches | None = None,
    ) -> Trained:
        """Local training from params: `epochs` over the client's own images, or exactly `steps` batches of them, or
        the batches given; the loss is the mean over a client's last epoch (nan if it has no images).
        """
        if epochs < 0 or (steps is not None and steps < 1):
            raise InputError(
                f"epochs={epochs}, steps={steps}: expected epochs of at least 0, steps of at least 1 or None"
            )
        if batches is None:
            batches = self.batches(epochs=epochs, steps=steps, seed=seed, round=round)
        state = optimizer_state or {}
        executor = self._executor(params, state, batches)
        batches = self._placed(batches)
        seeds = [key(seed, "dropout", round, name) for name in self.names]
        params, state, losses = executor.train(params, state, self.inputs, batches, pull, seeds)
        return Trained(params, state, self._last_epoch(losses, batches).cpu())

    def batches(self, *, epochs: int, steps: int | None, seed: int, round: int) -> Batches:
        """Each client's own shuffled batches of a round."""
        return shuffled(self.federation, self.batch_size, epochs=epochs, steps=steps, seed=seed, round=round)

    def _placed(self, batches: Batches) -> Batches:
        index, weight, targets = (field.to(self.device) for field in batches)
        return Batches(index, weight.to(next(self._module.parameters()).dtype), targets)

    def _last_epoch(self, losses: Tensor, batches: Batches) -> Tensor:
        """Mean loss (K,) over each client's last steps, as many as one pass over its own images takes."""
        active = batches.active
        sizes = self.federation.sizes("train").to(losses.device)
        left = active.flip(1).cumsum(1).flip(1)
        samples = (batches.weight != 0).sum(-1) * (left <= (sizes / self.batch_size).ceil()[:, None])
        return (losses * samples).sum(1) / samples.sum(1)

    def _executor(self, params: Params, state: Params, batches: Batches | None) -> Stacked | Loop:
        """The executor in use; `auto` measures on first use, and leaves the stack when it cannot do these batches."""
        expected = {name: (self.num_clients, *leaf.shape) for name, leaf in self._module.named_parameters()}
        found = {name: tuple(value.shape) for name, value in params.items()}
        if found != expected:
            wrong = min(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
            raise InputError(
                f"parameter '{wrong}' has shape {found.get(wrong)}, expected {expected.get(wrong)}: one row per "
                "client; take them from init() or train() of the same federation and network"
            )
        stackable = self.executor_name != "loop" and (batches is None or not self._stacked.obstacle(batches))
        if self._requested == "auto" and not stackable:
            self.executor_name = "loop"
        if self.executor_name == "auto":
            plan = self._placed(self.batches(epochs=0, steps=2, seed=0, round=0))
            run = [partial(e.train, params, {}, self.inputs, plan, None, ()) for e in (self._stacked, self._loop)]
            shape = (self.num_clients, self.batch_size, *self.inputs.shape[1:])
            case = (repr(self._module), type(self._module), shape, self.inputs.dtype, self.device, self.optimizer)
            self.executor_name = fastest((*case, torch.get_num_threads()), {"stacked": run[0], "loop": run[1]})
        return self._stacked if self.executor_name == "stacked" else self._loop


def _check_parts(federation: object, network: object, optimizer: object, device: object, dtype: object) -> None:
    """Refuses what cannot be a part of clients, before anything is built of it."""
    from scool_ppl.data.federation import Federation

    check_kind("federation", federation, Federation, "load_federation(spec) makes one")
    for what, part in (("network", network), ("optimizer", optimizer)):
        if isinstance(part, nn.Module | torch.optim.Optimizer) or not (callable(part) or part is None):
            found = repr(part) if isinstance(part, str) else f"a {type(part).__name__}"
            raise InputError(
                f"{what} is {found}, expected a function that makes one; write lambda or functools.partial"
            )
    if dtype is not None:
        check_kind("dtype", dtype, torch.dtype, "e.g. torch.float64")
        if not dtype.is_floating_point:  # type: ignore[attr-defined]
            raise InputError(f"dtype is {dtype}, expected one of floating-point numbers, e.g. torch.float64")
    try:
        torch.empty(0, device=device)  # type: ignore[call-overload]
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(
            f"device {device!r} cannot be used ({str(error).split('.')[0]}), expected e.g. 'cpu'"
        ) from error
