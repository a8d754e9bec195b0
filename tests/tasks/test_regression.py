"""Regression: losses against torch.distributions, chance and score against the best constant."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, Normal

from scool_ppl.data.federation import Federation
from scool_ppl.errors import InputError
from scool_ppl.tasks.regression import Regression
from tests.helpers.small import normal
from tests.helpers.tasks import best_constant_loss, federation


@pytest.mark.parametrize(
    ("task", "targets", "width"),
    [
        (Regression(0.7), normal(3, 5, seed=1), 1),
        (Regression(0.7), normal(3, 5, 1, seed=1), 1),
        (Regression(2.0, dimensions=2), normal(3, 5, 2, seed=1), 2),
    ],
)
def test_losses_are_negative_log_probabilities(task: Regression, targets: Tensor, width: int) -> None:
    outputs = normal(3, 5, width)
    expected = -Independent(Normal(outputs, task.sigma), 1).log_prob(targets.view(outputs.shape))
    torch.testing.assert_close(task.losses(outputs, targets), expected)
    assert expected.shape == (3, 5)


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_the_variance_of_all_is_pooled_from_what_each_client_tells(shape: tuple[int, ...]) -> None:
    """Clients whose targets are far apart: each alone would explain another variance."""
    parts = [place + normal(rows, *shape, seed=rows).float() for rows, place in ((5, 0.0), (1, 3.0), (20, -7.0))]
    task = Regression(dimensions=math.prod(shape))
    whole = task.fitted(torch.cat(parts))
    alone = task.fitted(parts[0])
    for mine in (task, alone):
        found = mine.pooled(torch.stack([mine.statistics(part) for part in parts]))
        assert found.variance == pytest.approx(whole.variance, rel=1e-12)
    assert alone.variance < whole.variance / 3


def test_the_score_is_the_share_of_variance_explained() -> None:
    regression = Regression(variance=4.0)
    found = regression.scores(torch.tensor([[1.0], [3.0], [0.0]]), torch.tensor([1.0, 1.0, 4.0]))
    assert found.tolist() == [1.0, 0.0, -3.0]


@pytest.mark.parametrize("name", ["sine", "vectors"])
def test_chance_is_the_best_constant_on_all_training_targets(name: str) -> None:
    data = federation(name)
    task, targets = data.task, data.targets[torch.cat(data.train)].double()
    mean = targets.mean(0, keepdim=True).expand_as(targets).reshape(len(targets), task.width)
    assert task.chance == pytest.approx(float(task.losses(mean, targets).mean()), rel=1e-6)
    for worse in (mean + 0.01, mean - 0.01):
        assert float(task.losses(worse, targets).mean()) > task.chance
    # The score measures against the same constant.
    assert float(task.scores(mean, targets).mean()) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", ["sine", "vectors"])
def test_marginal_is_the_best_constant_prediction_of_each_client(name: str) -> None:
    data = federation(name)
    own = [data.targets[rows].double() for rows in data.train]
    found = data.task.marginal(own, torch.float64)
    expected = [best_constant_loss(data.task, targets, (len(targets), data.task.width)) for targets in own]
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


def test_the_variance_is_that_of_the_targets_unless_given() -> None:
    assert Regression().fitted(torch.tensor([1.0, 3.0])).variance == 1
    assert Regression(dimensions=2).fitted(torch.tensor([[1.0, 0.0], [3.0, 4.0]])).variance == 1 + 4
    assert Regression(variance=9.0).fitted(torch.ones(5)).variance == 9
    with pytest.raises(InputError, match="the 5 training targets are all the same, expected some variance to explain"):
        Regression().fitted(torch.ones(5))


def test_dimensions_are_those_of_the_targets_unless_given() -> None:
    x = normal(3, 2)
    assert Regression.of(x, normal(3)) == Regression.of(x, normal(3, 1)) == Regression()
    assert Regression.of(x, normal(3, 4), sigma=2.0) == Regression(2.0, 4)
    assert Regression.of(x, normal(3), dimensions=2).output_shape((9,)) == (2,)


def test_mixtures_average_the_outputs_themselves() -> None:
    outputs = normal(3, 2)
    assert torch.equal(Regression(dimensions=2).predictive(outputs), outputs)
    assert torch.equal(Regression(dimensions=2).from_predictive(outputs), outputs)


def test_numbers_are_no_classes() -> None:
    data = federation("sine")
    assert data.label_counts().shape == data.class_mask().shape == (4, 0)
    assert data.classes(0).tolist() == []


OWNER = [0, 0, 0, 1, 1, 1]
VECTORS = {"inputs": normal(6, 2), "targets": normal(6), "clients": OWNER, "task": "regression"}
BAD = torch.tensor([0.0, 1.0, torch.nan, 3.0, 4.0, 5.0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"targets": BAD}, "target 2 holds NaN or infinity"),
        ({"targets": torch.stack([BAD, -BAD], 1)}, "target 2 holds NaN or infinity"),
        ({"targets": BAD.nan_to_num(torch.inf)}, "target 2 holds NaN or infinity"),
        ({"inputs": torch.full((6, 2), torch.nan)}, "input 0 holds NaN"),
        ({"targets": normal(5)}, r"of shape \(5,\), expected float32 \(6,\)"),
        ({"task": Regression(dimensions=2)}, r"expected float32 \(6, 2\): 2 for each input"),
        ({"targets": torch.ones(6)}, "training targets are all the same"),
        ({"num_classes": 3}, "num_classes is 3, but the task 'regression' has 0"),
    ],
)
def test_wrong_arrays_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        Federation.from_arrays(**{"validation": 0.0, "test": 0.0, **VECTORS, **changes})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        *({"sigma": 0.0}, {"sigma": math.nan}, {"sigma": math.inf}, {"sigma": "wide"}),
        *({"dimensions": 0}, {"dimensions": 1.5}, {"variance": -1.0}, {"variance": "much"}),
    ],
    ids=str,
)
def test_impossible_likelihoods_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected a positive sigma, at least one dimension and a variance from 0 up"):
        Regression(**options)  # type: ignore[arg-type]


def test_all_dimensions_are_everyones_own_outputs() -> None:
    assert Regression(dimensions=2).own_outputs(torch.zeros(3, 0, dtype=torch.long)).tolist() == [[True, True]] * 3
