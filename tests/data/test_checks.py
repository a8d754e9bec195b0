"""What makes no federation is refused in one line that names the client and the row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scool_ppl.data.checks import warn_of_clients
from scool_ppl.data.federation import Federation
from scool_ppl.data.reading import SPLITS
from scool_ppl.errors import InputError
from scool_ppl.tasks.categorical import Classification
from tests.helpers.federations import small
from tests.helpers.tasks import federation as of_task

TENSOR = torch.tensor


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": torch.arange(16.0).double().view(8, 2)}, "float64 of shape"),
        ({"inputs": torch.arange(8.0)}, r"expected float32 \(N"),
        ({"inputs": np.zeros((8, 2))}, "use Federation.from_arrays"),
        ({"inputs": torch.tensor([[0.0, 1.0]] * 5 + [[0.0, torch.nan]] + [[0.0, 1.0]] * 2)}, "input 5 holds NaN"),
        ({"inputs": torch.full((8, 2), torch.inf)}, "input 0 holds NaN or infinity"),
        ({"targets": torch.zeros(7, dtype=torch.long)}, "one label for each input"),
        ({"targets": torch.zeros(8)}, "float32"),
        ({"targets": TENSOR([0, 1, 2, 0, 1, 3, 0, 1])}, "run from 0 to 3, expected 0 to 2"),
        ({"targets": TENSOR([0, 1, 2, 0, 1, -1, 0, 1])}, "run from -1"),
        ({"num_classes": 2}, "expected 0 to 1"),
        ({"names": ("a", "a")}, r"\['a'\] are repeated"),
        ({"names": ("a", "")}, "empty"),
        ({"names": ("a",), "relabel": None, "groups": None}, "2 index lists for 1 clients"),
        ({"groups": (0,)}, "1 groups for 2 clients"),
        ({"truth": torch.zeros(2, 3)}, r"truth has shape \(2, 3\)"),
        ({"truth": torch.eye(2)}, "zero diagonal"),
        ({"truth": TENSOR([[0.0, torch.nan], [0.0, 0.0]])}, "finite"),
        ({"relabel": TENSOR([[0, 1, 2]])}, "relabel is torch.int64"),
        ({"relabel": TENSOR([[0, 1, 2], [1, 2, 3]])}, "outside 0 to 2"),
        ({"train": (TENSOR([0, 1]), TENSOR([], dtype=torch.long))}, "b has no training data"),
        ({"train": (TENSOR([0, 1]), TENSOR([3, 8]))}, "run from 3 to 8, expected 0 to 7"),
        ({"train": (TENSOR([0, 1]), TENSOR([-1, 3]))}, "run from -1"),
        ({"train": (TENSOR([0, 1]), TENSOR([3, 3]))}, "name a row twice"),
        ({"train": (TENSOR([0, 1]), TENSOR([3.0]))}, "expected an int64 index list"),
        ({"train": (TENSOR([0, 1]), [3])}, "are list, expected an int64"),
        ({"train": (TENSOR([0, 1]), TENSOR([1, 3]))}, "b trains on row 1 but another client trains on it"),
        ({"validation": (TENSOR([1]), TENSOR([5]))}, "a validates on row 1"),
        ({"test": (TENSOR([6, 2]), TENSOR([6]))}, "a is tested on row 2 but a client validates on it"),
        ({"test": (TENSOR([6]), TENSOR([0]))}, "b is tested on row 0 but a client trains on it"),
    ],
)
def test_data_that_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    small()
    with pytest.raises(InputError, match=words) as caught:
        small(**changes)
    assert "\n" not in str(caught.value)


def test_a_split_without_a_list_for_every_client_is_refused() -> None:
    for split in SPLITS:
        with pytest.raises(InputError, match=f"{split} has 1 index lists for 2 clients, expected one for each"):
            small(**{split: (TENSOR([0]),)})


def test_a_task_without_classes_has_none_to_rename() -> None:
    data = of_task("sine")
    with pytest.raises(InputError, match="regression has no classes to rename; leave it out"):
        Federation(**{**vars(data), "relabel": torch.zeros(4, 1, dtype=torch.long)})


def test_classes_are_as_many_as_the_task_has() -> None:
    with pytest.raises(InputError, match="num_classes is 3, but the task 'classification' has 5 classes, expected the"):
        small(task=Classification(5))


def test_held_out_rows_may_be_shared_and_lists_may_be_in_any_order() -> None:
    shared = TENSOR([7, 6])
    federation = small(test=(shared, shared), train=(TENSOR([1, 0]), TENSOR([4, 3])))
    assert federation.test[0] is federation.test[1]
    both = small(validation=(TENSOR([5]), TENSOR([5])))
    assert both.sizes("validation").tolist() == [1, 1]


def test_numbers_that_nobody_has_scaled_are_named() -> None:
    """The size of a column is the root of its mean square over the training rows: those of the others do not count."""
    inputs = torch.ones(20, 3)
    inputs[:, 2] = 30
    with pytest.warns(
        UserWarning, match=r"^inputs are of size 30 \(input 2\), expected about one: scale them"
    ) as warned:
        Federation.from_arrays(inputs, torch.arange(20) % 2, torch.arange(20) // 10)
    assert len(warned) == 1
    inputs[:, 2] = torch.where(torch.arange(20) % 3 == 2, 1e6, 1.0)
    Federation.from_arrays(inputs, torch.arange(20) % 2, torch.arange(20) // 10, split=torch.arange(20) % 3)


def test_clients_of_one_class_and_without_tests_are_named() -> None:
    targets, split = TENSOR([0, 0, 0, 1, 0, 1, 0, 1]), TENSOR([0, 0, 0, 0, 0, 0, 2, 2])
    federation = Federation.from_arrays(torch.zeros(8, 2), targets, TENSOR([0, 0, 0, 1, 1, 1, 1, 1]), split=split)
    with pytest.warns(UserWarning, match="client") as warned:
        warn_of_clients(federation)
    assert [str(warning.message).partition(";")[0] for warning in warned] == [
        "training rows of one class only: client 0 (1 of 2 clients)",
        "no test rows: client 0 (1 of 2 clients)",
    ]
    warn_of_clients(federation.select([1]))
