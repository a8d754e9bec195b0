"""Measures by their definitions: pairs that are ranked right, counts of the confusion matrix, bins by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from scool_ppl.tasks import Classification, NextToken, Regression
from scool_ppl.tasks.measures import of_classes, of_numbers, of_tokens
from tests.helpers.small import normal
from tests.helpers.tasks import integers


def ranked(p: np.ndarray, positive: np.ndarray) -> float:
    """The share of pairs of a positive and a negative that p ranks right."""
    above = np.sign(p[positive][:, None] - p[~positive][None])
    return float(((above + 1) / 2).mean())


@pytest.mark.parametrize("classes", [2, 4])
def test_measures_of_classes_are_their_definitions(classes: int) -> None:
    p, y = normal(60, classes).softmax(-1), integers(classes, 60)
    found, q, chosen = of_classes(p, y), p.double().numpy(), p.argmax(-1).numpy()
    true = y.numpy()
    sides = [1] if classes == 2 else range(classes)
    assert found["auc"] == pytest.approx(np.mean([ranked(q[:, side], true == side) for side in sides]))
    hits = np.array([[(chosen == c)[true == t].sum() for c in range(classes)] for t in range(classes)])
    f1 = [2 * hits[c, c] / (hits[c].sum() + hits[:, c].sum()) for c in sides]
    assert found["f1"] == pytest.approx(np.mean(f1))
    assert found["balanced_accuracy"] == pytest.approx(np.mean(hits.diagonal() / hits.sum(1)))
    assert found["log_loss"] == pytest.approx(-np.log(q[np.arange(60), true]).mean())
    gaps = 0.0
    for low in np.arange(10) / 10:
        inside = (q.max(1) >= low) & (q.max(1) < low + 0.1)
        if inside.any():
            gaps += inside.mean() * abs((chosen == true)[inside].mean() - q.max(1)[inside].mean())
    assert found["calibration_error"] == pytest.approx(gaps)


def test_a_client_with_one_class_has_no_auc_and_the_rest() -> None:
    found = of_classes(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]))
    assert math.isnan(found["auc"])
    assert (found["f1"], found["balanced_accuracy"]) == (0.0, 0.5)
    right = of_classes(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 0]))
    assert math.isnan(right["f1"]), "nobody is positive, and nobody was said to be: 0 of 0"
    assert right["balanced_accuracy"] == 1


@pytest.mark.parametrize("task", [Classification(3), Regression(), NextToken(3)], ids=lambda task: task.name)
def test_without_rows_nothing_is_defined(task: Classification) -> None:
    shape, targets = ((0, 4, 3), (0, 4)) if isinstance(task, NextToken) else ((0, task.width), (0,))
    kind = torch.float32 if isinstance(task, Regression) else torch.long
    found = task.measures(torch.zeros(shape), torch.zeros(targets, dtype=kind))
    assert found
    assert all(math.isnan(value) for value in found.values())


def test_measures_of_numbers_and_tokens() -> None:
    found = of_numbers(torch.tensor([[1.0], [2.0]]), torch.tensor([4.0, -2.0]))
    assert found == {"rmse": pytest.approx(math.sqrt((9 + 16) / 2)), "mae": pytest.approx(3.5)}
    p = torch.tensor([[[0.5, 0.5], [0.2, 0.8]]])
    assert of_tokens(p, torch.tensor([[0, 1]])) == {"perplexity": pytest.approx(1 / math.sqrt(0.5 * 0.8))}
