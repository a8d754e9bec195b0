"""The number of torch's threads is as asked inside, and the user's own again outside."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from scool_ppl.base.threads import threads


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
