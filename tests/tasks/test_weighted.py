"""Weighted classification: the loss of torch's own weights, the best constant, and classes that count the same."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from scool_ppl.errors import InputError
from scool_ppl.tasks import Regression, Weighted, balanced
from scool_ppl.tasks.categorical import Classification
from tests.helpers.small import normal
from tests.helpers.tasks import best_constant_loss, integers

TASK = Weighted(3, (0.5, 1.0, 2.5))


def test_the_loss_is_that_of_torch() -> None:
    outputs, targets = normal(7, 3), integers(3, 7)
    expected = F.cross_entropy(outputs, targets, weight=outputs.new_tensor(TASK.weights), reduction="none")
    torch.testing.assert_close(TASK.losses(outputs, targets), expected)


def test_image_by_image_a_probability_is_a_probability() -> None:
    """Mixtures add them up."""
    outputs, targets = normal(7, 3), integers(3, 7)
    log_p = -TASK.position_losses(outputs, targets)[:, 0]
    torch.testing.assert_close(log_p, outputs.log_softmax(1)[torch.arange(7), targets])


def test_marginal_is_the_best_constant_prediction() -> None:
    targets = torch.tensor([0, 0, 0, 1, 2, 2])
    (found,) = TASK.marginal([targets], torch.float64).tolist()
    assert found == pytest.approx(best_constant_loss(TASK, targets, (6, 3)), abs=1e-5)


def test_balanced_classes_have_the_same_part_in_a_loss_whose_weights_are_one_on_average() -> None:
    counts = torch.tensor([90, 10, 0])
    weights = torch.tensor(balanced(Classification(3), counts).weights)
    parts = weights * counts
    assert float(parts[0]) == pytest.approx(float(parts[1]))
    assert float(parts.sum() / counts.sum()) == pytest.approx(1)
    assert weights[2] == 1
    assert balanced(Classification(3), counts).chance == math.log(3)


def test_what_cannot_be_weighed_is_refused() -> None:
    with pytest.raises(InputError, match="expected 3 positive numbers, one for each class"):
        Weighted(3, (1.0, 2.0))
    with pytest.raises(InputError, match=r"weights are \('a', 1.0\), expected 2 positive numbers"):
        Weighted(2, ("a", 1.0))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="of regression were to be balanced, expected a classification"):
        balanced(Regression(), torch.zeros(0))
