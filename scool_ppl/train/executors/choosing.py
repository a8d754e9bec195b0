"""Which executor runs the clients: what the networks and the optimiser allow, and what is faster here."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from scool_ppl.errors import InputError, unknown
from scool_ppl.tasks.base import Task
from scool_ppl.train.batches import Batches
from scool_ppl.train.executors.descent import MakeOptimizer
from scool_ppl.train.executors.loop import Loop
from scool_ppl.train.executors.remembered import recall, remember
from scool_ppl.train.executors.stacked import Stacked
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.train.questions import Params

EXECUTORS = ("auto", "stacked", "loop")
_MEASURED: dict[object, str] = {}


class Executors:
    """Both executors of a network, and the `name` of the one in use: "auto" until the faster has been found.

    A network that cannot be stacked runs in the loop. The two draw different noise, so a `random` network (dropout) is not
    measured but stacked wherever that runs. `either` says that both are possible and neither was asked for.
    """

    def __init__(
        self,
        module: nn.Module,
        task: Task,
        optimizer: MakeOptimizer,
        random: bool,
        requested: str,
        example: Tensor,
        privacy: Privacy | None = None,
    ) -> None:
        if requested not in EXECUTORS:
            raise unknown("executor", requested, EXECUTORS)
        self.stacked = Stacked(module, task, optimizer, random, example.device, privacy)
        self.loop = Loop(module, task, optimizer, random, privacy)
        self.requested = self.name = requested
        refusal = self.stacked.refusal(example) if requested != "loop" else None
        self.either = requested == "auto" and not refusal
        if refusal and requested == "stacked":
            raise InputError(f"executor='stacked' cannot be used: {refusal}; use executor='loop' or 'auto'")
        if refusal:
            warnings.warn(f"{refusal}: clients run one by one", stacklevel=2)
            self.name = "loop"
        elif requested == "auto" and random:
            self.name = "stacked"

    def on(self, task: Task) -> Executors:
        """The same for another task of these networks; which executor is in use is its own from then on."""
        moved = copy.copy(self)
        moved.stacked, moved.loop = copy.copy(self.stacked), copy.copy(self.loop)
        moved.stacked.task = moved.loop.task = task
        return moved

    @property
    def running(self) -> Stacked | Loop:
        """The one in use; the loop while nobody has chosen."""
        return self.stacked if self.name == "stacked" else self.loop

    def use(self, name: str) -> None:
        """Use this one instead of measuring; if another was asked for, or is the only one, it stays, with a warning."""
        if name not in EXECUTORS:
            raise unknown("executor", name, EXECUTORS)
        if name in ("auto", self.name):
            return
        if self.either:
            self.name = name
        else:
            warnings.warn(
                f"the run used the executor '{name}', these clients use '{self.name}': the last bits may differ",
                stacklevel=2,
            )

    def choose(self, batches: Batches | None, trial: Callable[[], tuple[Params, Tensor, Batches, str]]) -> None:
        """Settle what `auto` means: no stack for batches that it cannot do, else whichever is faster on a trial.

        trial: networks, inputs, two steps of batches, and what the answer depends on besides the networks.
        """
        if self.requested != "auto":
            return
        if self.name == "loop" or (batches is not None and self.stacked.obstacle(batches)):
            self.name = "loop"
        if self.name == "auto":
            networks, inputs, plan, case = trial()
            runs = [partial(each.train, networks, {}, inputs, plan, None, ()) for each in (self.stacked, self.loop)]
            module = self.stacked.module
            whole = f"{type(module).__module__}.{type(module).__qualname__} {module!r}\n{case}"
            self.name = fastest(whole, {"stacked": runs[0], "loop": runs[1]})


def fastest(case: str, candidates: dict[str, Callable[[], object]]) -> str:
    """The quickest candidate after one warm-up call each.

    Remembered per case, in this process and on this machine's disk, so that equal runs take the same executor and give
    the same bits.
    """
    known = case, torch.get_num_threads()
    if known not in _MEASURED:
        kept = recall(case)
        if kept in candidates:
            _MEASURED[known] = str(kept)
    if known not in _MEASURED:
        seconds = {}
        for name, run in candidates.items():
            run()
            start = time.perf_counter()
            run()
            seconds[name] = time.perf_counter() - start
        _MEASURED[known] = min(seconds, key=lambda name: seconds[name])
        remember(case, _MEASURED[known], seconds)
    return _MEASURED[known]
