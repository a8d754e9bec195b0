"""Good-Turing log-odds of unseen classes, counted by loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scool_ppl import InputError
from scool_ppl.deploy import unseen_log_odds


def counts(num_clients: int, num_classes: int, seed: int, most: int = 4) -> Tensor:
    return torch.randint(0, most, (num_clients, num_classes), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_loops_count(seed: int) -> None:
    train, held_out = counts(4, 5, seed), counts(4, 5, seed + 10)
    hits = images = lacking = 0
    for i in range(4):
        for c in range(5):
            images += int(held_out[i, c])
            if train[i, c] == 0:
                lacking += 1
                hits += int(held_out[i, c])
    u = (hits + 0.5) / (images + 1) / (lacking / 4)
    found = unseen_log_odds(train, held_out)
    for i in range(4):
        for c in range(5):
            expected = min(0.0, math.log(5 * u)) if train[i, c] == 0 else 0.0
            assert float(found[i, c]) == pytest.approx(expected, abs=1e-6)


def test_classes_that_nobody_meets_again_are_unlikely() -> None:
    train = torch.tensor([[50, 0], [0, 50]])
    u = 0.5 / 101
    assert torch.allclose(unseen_log_odds(train, train), math.log(2 * u) * torch.tensor([[0.0, 1.0], [1.0, 0.0]]))


def test_classes_that_are_as_common_as_others_keep_their_odds() -> None:
    assert not unseen_log_odds(torch.tensor([[9, 0]]), torch.tensor([[5, 5]])).any()


@pytest.mark.parametrize("train", [torch.ones(3, 2).long(), torch.zeros(3, 0).long()], ids=["none lacks", "no classes"])
def test_there_is_nothing_to_say_where_no_class_is_unseen(train: Tensor) -> None:
    found = unseen_log_odds(train, train)
    assert found.shape == train.shape
    assert found.is_floating_point()
    assert not found.any()


def test_without_held_out_images_it_is_a_guess() -> None:
    """u = 1/2 over one unseen class of two: as likely as by guessing."""
    assert not unseen_log_odds(torch.tensor([[3, 0]]), torch.tensor([[0, 0]])).any()


def test_counts_of_other_clients_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected \(clients, classes\) for both"):
        unseen_log_odds(counts(3, 2, 0), counts(2, 2, 0))
