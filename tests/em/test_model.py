"""A cooperation model says what its clients are to show, and a schedule how long they train."""

from __future__ import annotations

import pytest

from scool_ppl import CooperationModel, GraphPrior, InputError, Schedule
from scool_ppl.look import CrossLoss, Distance, Ignored, MixedValidation
from scool_ppl.mix import Alone


class Near(GraphPrior):
    needs = (Distance(1.0), "validation_before")


@pytest.mark.parametrize(
    ("prior", "likelihood", "needs"),
    [
        (GraphPrior, Ignored(), set()),
        (GraphPrior, CrossLoss(symmetric=False, reference="uniform"), {"loss"}),
        (Near, Ignored(), {Distance(1.0), "validation_before"}),
        (Near, MixedValidation(), {Distance(1.0), "validation_before", "mixed_validation"}),
    ],
)
def test_a_model_needs_what_its_prior_and_its_likelihood_need(
    prior: type[GraphPrior], likelihood: CrossLoss, needs: set[object]
) -> None:
    assert CooperationModel(prior(3), likelihood, Alone()).needs == needs


def test_the_first_round_is_the_warm_up() -> None:
    schedule = Schedule(local_epochs=2, warmup_epochs=7)
    assert [schedule.epochs(round) for round in range(3)] == [7, 2, 2]


@pytest.mark.parametrize("wrong", [{"local_epochs": -1}, {"warmup_epochs": -1}, {"local_steps": 0}])
def test_a_schedule_without_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="expected epochs of at least 0 and steps of at least 1"):
        Schedule(**wrong)
