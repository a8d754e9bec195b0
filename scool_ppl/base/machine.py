"""What this process takes of the machine: threads for torch, and memory that it keeps."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LIMITS = {"MALLOC_TRIM_THRESHOLD_": (-1, 2**31 - 1), "MALLOC_MMAP_THRESHOLD_": (-3, 2**30)}
"""Limits above which glibc gives memory back: its variables of the environment, their numbers in <malloc.h>, and bytes that
hardly a tensor exceeds (the first can be no larger).
"""


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Runs with this many torch threads (None: as many as before) and restores the number, for new threads too."""
    before = torch.get_num_threads()
    try:
        if count is not None:
            torch.set_num_threads(count)
        yield
    finally:
        torch.set_num_threads(before)


def keep_memory() -> bool:
    """Keeps memory of tensors that are let go for those to come; returns whether that is possible here.

    Otherwise large ones go back to the system, which hands them out again page by page. The process stays as large as
    it has ever been, until it ends. Of glibc only, and not where its variables of the environment, such as
    MALLOC_TRIM_THRESHOLD_, say otherwise.
    """
    if platform.libc_ver()[0] != "glibc" or _LIMITS.keys() & os.environ.keys():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return min(mallopt(number, size) for number, size in _LIMITS.values()) == 1
