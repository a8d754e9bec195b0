"""Classification and the next token: losses against torch.distributions, entropies against the best constant."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical

from scool_ppl.data.federation import Federation
from scool_ppl.errors import InputError
from scool_ppl.tasks.categorical import Classification, NextToken
from tests.helpers.small import normal
from tests.helpers.tasks import best_constant_loss, federation, integers

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]])


@pytest.mark.parametrize(
    ("task", "targets"), [(Classification(4), integers(4, 3, 5)), (NextToken(4), integers(4, 3, 5, 6))]
)
def test_losses_are_negative_log_probabilities(task: Classification | NextToken, targets: Tensor) -> None:
    outputs = normal(*targets.shape, 4)
    expected = -Categorical(logits=outputs).log_prob(targets)
    expected = expected.mean(-1) if isinstance(task, NextToken) else expected
    torch.testing.assert_close(task.losses(outputs, targets), expected)
    assert expected.shape == (3, 5)


def test_scores_are_shares_of_right_answers() -> None:
    assert Classification(3).scores(LOGITS, torch.tensor([0, 1])).tolist() == [True, False]
    assert NextToken(3).scores(LOGITS[None], torch.tensor([[0, 1]])).tolist() == [0.5]


def test_chance_is_the_log_of_the_number_of_values() -> None:
    assert Classification(10).chance == pytest.approx(math.log(10))
    assert NextToken(17).chance == pytest.approx(math.log(17))


@pytest.mark.parametrize("name", ["text", "classes"])
def test_marginal_is_the_best_constant_prediction_of_each_client(name: str) -> None:
    data = federation(name)
    own = [data.labels(i, rows) for i, rows in enumerate(data.train)]
    found = data.task.marginal(own, torch.float64)
    expected = [best_constant_loss(data.task, targets, (*targets.shape, data.task.width)) for targets in own]
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


def test_values_are_counted_wherever_they_stand() -> None:
    assert Classification(4).counts(torch.tensor([0, 2, 2])).tolist() == [1, 0, 2, 0]
    assert NextToken(4).counts(torch.tensor([[0, 2], [2, 2]])).tolist() == [1, 0, 3, 0]


@pytest.mark.parametrize("task", [Classification(3), NextToken(3)])
def test_what_mixtures_average_is_a_distribution_and_its_log_stands_for_it(task: Classification | NextToken) -> None:
    found = task.predictive(LOGITS)
    torch.testing.assert_close(found, LOGITS.exp() / LOGITS.exp().sum(-1, keepdim=True))
    torch.testing.assert_close(task.predictive(task.from_predictive(found)), found)
    nobody = task.from_predictive(torch.tensor([1.0, 0.0, 0.0]))
    assert nobody.isfinite().all(), "a value that no network of the mixture gives any chance has a finite loss"


def test_the_number_of_values_is_what_the_arrays_show_unless_given() -> None:
    x, tokens = normal(3, 2).float(), torch.tensor([[0, 4], [1, 2]])
    assert Classification.of(x, torch.tensor([0, 4, 1])) == Classification(5)
    assert Classification.of(x, torch.tensor([0, 1, 1]), 7) == Classification(7)
    assert NextToken.of(tokens, tokens.flip(1) + 1) == NextToken(6)
    assert NextToken.of(tokens, tokens, 9) == NextToken(9)


def test_outputs_have_a_logit_for_every_value_and_position() -> None:
    assert Classification(5).output_shape((1, 28, 28)) == (5,)
    assert NextToken(5).output_shape((7,)) == (7, 5)


def test_text_has_tokens_that_clients_count() -> None:
    written = federation("text")
    assert written.label_counts("test").sum(1).tolist() == [5 * 7] * 4
    assert set(written.targets[written.test[1]].unique().tolist()) <= set(written.classes(1).tolist())


OWNER = [0, 0, 0, 1, 1, 1]
TOKENS = {"inputs": integers(4, 6, 3), "targets": integers(4, 6, 3), "clients": OWNER, "task": NextToken(4)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": NextToken(3)}, "run from 0 to 3, expected 0 to 2; renumber, or set vocabulary"),
        ({"targets": integers(4, 6)}, r"targets are torch.int64 of shape \(6,\), expected int64 \(N, T\)"),
        ({"targets": integers(4, 6, 2)}, r"shape \(6, 2\), expected int64 \(N, T\)"),
        ({"inputs": integers(4, 6, 0), "targets": integers(4, 6, 0)}, r"shape \(6, 0\), expected int64 \(N, T\)"),
        ({"inputs": normal(6, 3)}, "inputs are torch.float64, expected whole numbers"),
        ({"inputs": -integers(4, 6, 3)}, "inputs run from -"),
        ({"task": None, "targets": normal(6)}, "targets are torch.float64, expected whole.*say task='regression'"),
        ({"task": None, "inputs": normal(6, 2), "targets": integers(3, 6, 1)}, "one label for each input"),
    ],
)
def test_wrong_arrays_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        Federation.from_arrays(**{"validation": 0.0, "test": 0.0, **TOKENS, **changes})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("count", [-1, 2.5, "a"])
def test_classes_and_tokens_are_counted(count: Any) -> None:
    with pytest.raises(InputError, match=f"num_classes is {count!r}, expected a whole number of at least 0"):
        Classification(count)
    with pytest.raises(InputError, match=f"vocabulary is {count!r}, expected a whole number of at least 0"):
        NextToken(count)


def test_only_classes_that_a_client_has_are_its_own_outputs_and_all_tokens_are() -> None:
    counts = torch.tensor([[3, 0, 1], [0, 0, 2]])
    assert Classification(3).own_outputs(counts).tolist() == [[True, False, True], [False, False, True]]
    assert NextToken(3).own_outputs(counts).tolist() == [[True] * 3] * 2


@pytest.mark.parametrize("task", [Classification(3), NextToken(3)])
def test_what_is_counted_in_classes_needs_to_know_nothing_of_all_clients(task: Classification | NextToken) -> None:
    told = task.statistics(torch.tensor([0, 2]))
    assert told.shape == (0,)
    assert task.pooled(torch.stack([told, told])) == task
