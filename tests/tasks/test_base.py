"""Checks that tasks share: numbers for each sample, finite, and values in a range, with the first fault named."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scool_ppl.tasks.base import check_finite, check_numbers, check_range
from tests.helpers.refusals import Case, refused, refuses

BAD = torch.zeros(6, 2, 2)
BAD[4, 1, 0], BAD[2, 0, 1] = torch.inf, torch.nan

REFUSED: list[Case] = [
    (lambda: check_numbers(torch.zeros(3)), "inputs are torch.float32 of shape (3,), expected float32 (N, ...)"),
    (lambda: check_numbers(torch.zeros(3, 2).double()), "inputs are torch.float64 of shape (3, 2)"),
    (lambda: check_numbers(torch.zeros(3, 2).long()), "inputs are torch.int64"),
    (lambda: check_finite("target", BAD), "target 2 holds NaN or infinity, expected finite numbers; remove or repair"),
    (lambda: check_finite("target", -BAD[3:]), "target 1 holds NaN or infinity"),
    (
        lambda: check_range("tokens", torch.tensor([[3, 0], [5, 1]]), 5, "set vocabulary"),
        "tokens run from 0 to 5, expected 0 to 4; renumber, or set vocabulary",
    ),
    (lambda: check_range("tokens", torch.tensor([-1]), 5, "set vocabulary"), "tokens run from -1 to -1"),
    (lambda: check_range("tokens", torch.tensor([0]), 0, "set vocabulary"), "expected 0 to -1"),
]


@refused(REFUSED)
def test_the_first_fault_is_named_in_one_line(call: Any, words: str) -> None:
    refuses(call, words)


@pytest.mark.parametrize("shape", [(3, 2), (3, 1, 4, 4), (0, 2)])
def test_numbers_of_any_shape_pass(shape: tuple[int, ...]) -> None:
    inputs = torch.zeros(shape)
    check_numbers(inputs)
    check_finite("input", inputs)


def test_ranges_are_of_values_and_nothing_is_in_any_range() -> None:
    check_range("tokens", torch.tensor([0, 4]), 5, "")
    check_range("tokens", torch.zeros(0, dtype=torch.long), 0, "")
