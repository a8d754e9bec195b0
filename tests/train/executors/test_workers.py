"""Worker threads, each with one torch thread and a module of its own."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from torch import nn

from scool_ppl.train.executors.workers import Workers


def test_no_two_are_at_work_on_one_module_and_results_keep_their_order() -> None:
    torch.set_num_threads(3)
    busy: set[int] = set()

    def work(module: nn.Module, item: int) -> tuple[int, int, int]:
        assert id(module) not in busy
        busy.add(id(module))
        time.sleep(0.01)
        busy.remove(id(module))
        return item, threading.get_ident(), torch.get_num_threads()

    found = Workers(nn.Linear(1, 1), 3).each(work, range(9), 3)
    assert [item for item, _, _ in found] == list(range(9))
    assert len({thread for _, thread, _ in found}) > 1
    assert {count for _, _, count in found} == {1}
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(("count", "most", "items"), [(1, 4, 3), (4, 1, 3), (4, 4, 1)])
def test_a_single_worker_is_this_thread(count: int, most: int, items: int) -> None:
    torch.set_num_threads(2)
    seen = Workers(nn.Linear(1, 1), count).each(
        lambda _, item: (threading.get_ident(), torch.get_num_threads()), range(items), most
    )
    assert set(seen) == {(threading.get_ident(), 2)}


def test_an_error_reaches_the_caller_and_no_module_is_lost() -> None:
    workers = Workers(nn.Linear(1, 1), 2)

    def fails(module: nn.Module, item: int) -> None:
        raise ValueError(str(item))

    for _ in range(3):
        with pytest.raises(ValueError, match="0"):
            workers.each(fails, range(4), 2)
    assert workers.each(lambda module, item: item, range(4), 2) == [0, 1, 2, 3]


def test_after_an_error_nothing_more_is_begun_and_the_first_one_is_told() -> None:
    begun: list[int] = []

    def fails(module: nn.Module, item: int) -> None:
        begun.append(item)
        time.sleep(0.05 if item == 0 else 0.01)
        raise ValueError(str(item))

    with pytest.raises(ValueError, match="0"):
        Workers(nn.Linear(1, 1), 2).each(fails, range(50), 2)
    assert set(begun) <= {0, 1}
