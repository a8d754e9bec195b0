"""The number of torch's threads is as asked inside and the user's own again outside; memory is kept where that is asked."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from scool_ppl.base.machine import keep_memory, threads


def elsewhere() -> int:
    """What a new thread finds."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_the_number_is_as_asked_inside_and_as_before_outside() -> None:
    before = torch.get_num_threads()
    with threads(before + 2):
        assert torch.get_num_threads() == elsewhere() == before + 2
        with threads(1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == before + 2
    assert torch.get_num_threads() == elsewhere() == before


def test_an_error_does_not_keep_the_number() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), threads(before + 1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


def test_none_leaves_the_number_but_undoes_what_is_changed_inside() -> None:
    before = torch.get_num_threads()
    with threads(None):
        assert torch.get_num_threads() == before
        torch.set_num_threads(before + 1)
    assert torch.get_num_threads() == before


def faults(*, keep: bool, **environment: str) -> tuple[bool, float]:
    """What `keep_memory` returns in a process of its own, and how many pages the system hands out to make a tensor of
    8 MB, which is let go at once, after the first few.
    """
    program = f"""
import resource, torch
from scool_ppl.base.machine import keep_memory
kept = {keep} and keep_memory()
for _ in range(5):
    torch.zeros(2**21)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.zeros(2**21)
print(kept, (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20)
"""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=own | environment, capture_output=True, text=True, check=True, timeout=120
    )
    kept, pages = done.stdout.split()
    return kept == "True", float(pages)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to keep memory")
def test_a_large_tensor_comes_from_memory_that_is_kept() -> None:
    pages = 2**23 / os.sysconf("SC_PAGE_SIZE")
    # By default glibc raises its limits when memory is let go, up to 32 MB, so that it may keep some itself.
    assert faults(keep=False, MALLOC_MMAP_THRESHOLD_="1000000") == (False, pytest.approx(pages, rel=0.05))
    kept, found = faults(keep=True)
    assert kept
    assert found < pages / 5, "one or two of the twenty may still need new pages, where others have taken theirs"


def test_whoever_sets_glibcs_variables_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert not keep_memory()
