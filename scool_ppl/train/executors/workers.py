"""Worker threads, each with a core and a module of its own."""

from __future__ import annotations

import copy
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from typing import TypeVar

import torch
from torch import nn

from scool_ppl.base.machine import threads

Module = TypeVar("Module", bound=nn.Module)
Item = TypeVar("Item")
Result = TypeVar("Result")


def twin(module: Module) -> Module:
    """A copy with parameters of its own, but for what is frozen: that is there once."""
    return copy.deepcopy(module, {id(leaf): leaf for leaf in module.parameters() if not leaf.requires_grad})


class Workers:
    """At most `count` threads at work, none of which waits for another: torch uses one thread inside each.

    A function that is called with parameters puts them into its module, so no two threads may share one.
    """

    def __init__(self, module: nn.Module, count: int) -> None:
        self.count = count
        self._modules: queue.SimpleQueue[nn.Module] = queue.SimpleQueue()
        for _ in range(count):
            self._modules.put(twin(module))

    def each(self, work: Callable[[nn.Module, Item], Result], items: Sequence[Item], most: int) -> list[Result]:
        """work(module, item) for every item, by `most` workers at most; a single one is this thread. Where it fails, no
        more items are begun, and the first one's error is raised.
        """
        todo, over = enumerate(items), Event()
        found: dict[int, Result] = {}
        failed: dict[int, BaseException] = {}

        def labour() -> None:
            module = self._modules.get()
            try:
                for place, item in todo:
                    if over.is_set():
                        break
                    try:
                        found[place] = work(module, item)
                    except BaseException as error:
                        failed[place] = error
                        raise
            finally:
                over.set()
                self._modules.put(module)

        workers = min(most, self.count, len(items))
        if workers <= 1:
            labour()
        else:
            with threads(None), ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                try:
                    wait([pool.submit(labour) for _ in range(workers)])
                finally:
                    over.set()
            if failed:
                raise failed[min(failed)]
        return [found[place] for place in range(len(items))]
