"""Arrays of numbers from lists, numpy and torch become float32 or int64 tensors, or are refused in a line."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scool_ppl.base.arrays import float_tensor, long_tensor
from scool_ppl.errors import InputError


@pytest.mark.parametrize(
    "values", [[[1, 2], [3, 4]], np.array([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1, 2], [3, 4]], dtype=torch.int16)]
)
def test_numbers_of_any_holder_become_float32_or_int64(values: object) -> None:
    found = float_tensor(values, "inputs")  # type: ignore[arg-type]
    assert found.dtype == torch.float32
    assert found.tolist() == [[1, 2], [3, 4]]
    if not (isinstance(values, np.ndarray) and values.dtype.kind == "f"):
        assert long_tensor(values, "targets").dtype == torch.long  # type: ignore[arg-type]
        assert long_tensor(values, "targets").tolist() == [[1, 2], [3, 4]]  # type: ignore[arg-type]


def test_float32_shares_the_memory_of_the_user() -> None:
    array = np.zeros(3, dtype=np.float32)
    found = float_tensor(array, "inputs")
    array[1] = 7
    assert found.tolist() == [0, 7, 0]


def test_integers_beyond_float_precision_stay_exact() -> None:
    assert long_tensor([2**53 + 1], "targets").tolist() == [2**53 + 1]


def test_an_empty_list_holds_no_fractions() -> None:
    assert long_tensor([], "targets").dtype == torch.long


def test_fractions_are_refused_even_if_they_are_whole() -> None:
    with pytest.raises(InputError, match=r"targets are torch.float32, expected whole numbers; convert them to"):
        long_tensor([1.0, 2.0], "targets")
    with pytest.raises(InputError, match="; write them as codes"):
        long_tensor([0.5], "split", "write them as codes")
    with pytest.raises(InputError, match="complex64"):
        long_tensor(torch.zeros(1, dtype=torch.complex64), "targets")


@pytest.mark.parametrize("values", [[["a"] * 2] * 3, [[1.0], [2.0, 3.0]], "text", [None], np.array([{}])], ids=str)
def test_what_is_no_array_of_numbers_is_one_line(values: object) -> None:
    for read in (float_tensor, long_tensor):
        with pytest.raises(
            InputError, match=r"inputs cannot be read as one array of numbers \(.+\); give an"
        ) as caught:
            read(values, "inputs")  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)


def test_complex_numbers_are_not_cut_to_their_real_part() -> None:
    with pytest.raises(InputError, match="complex64, expected real numbers; give real and imaginary parts"):
        float_tensor(torch.zeros(2, dtype=torch.complex64), "inputs")
