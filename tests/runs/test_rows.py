"""What a run writes down, against sums by hand."""

from __future__ import annotations

import json
import math
import statistics

import pytest
import torch
from torch import Tensor

from scool_ppl import load_federation
from scool_ppl.base.codec import Row
from scool_ppl.base.progress import tracked
from scool_ppl.em.state import Deployment, EMInfo, Fit
from scool_ppl.graph.scores import Scores
from scool_ppl.runs.rows import against_local, client_rows, history_row, spread, total_seconds
from scool_ppl.train.contract import Evaluation
from scool_ppl.train.questions import Ensemble, Predictor


def shares(num_clients: int, seed: int = 0) -> Tensor:
    return torch.rand(num_clients, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("num_clients", "worst"), [(1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (25, 3)])
def test_spread_is_mean_deviation_and_worst_tenth(num_clients: int, worst: int) -> None:
    accuracy = shares(num_clients)
    values = sorted(accuracy.tolist())
    found = spread(accuracy)
    assert found["mean"] == pytest.approx(statistics.fmean(values))
    assert found["std"] == pytest.approx(statistics.pstdev(values))
    assert found["worst10"] == pytest.approx(statistics.fmean(values[:worst]))


def test_clients_without_images_do_not_count() -> None:
    assert spread(torch.tensor([0.5, torch.nan, 0.7, torch.nan])) == pytest.approx(spread(torch.tensor([0.5, 0.7])))
    assert spread(torch.tensor([torch.nan])) == {"mean": None, "std": None, "worst10": None}
    assert spread(torch.tensor([])) == {"mean": None, "std": None, "worst10": None}


def test_spread_leaves_the_order_of_the_clients_alone() -> None:
    accuracy = shares(7)
    spread(accuracy)
    assert torch.equal(accuracy, shares(7))


def evaluation(seed: int) -> Evaluation:
    return Evaluation(shares(4, seed), shares(4, seed + 1), shares(4, seed + 2))


def info() -> EMInfo:
    received, sent = torch.tensor([[8.0, 0.0, 4.0, 4.0], [0.0, 16.0, 0.0, 0.0]], dtype=torch.float64)
    return EMInfo(-3.5, 0.25, {}, received, sent, {"train": 1.0, "look": 0.5, "infer": 0.25, "mix": 0.125})


def test_a_row_tells_mixed_from_trained_networks() -> None:
    mixed, trained = evaluation(0), evaluation(10)
    row = history_row(3, info(), mixed, trained, Scores(0.1, 0.9, None))
    assert row == {
        "round": 3,
        "elbo": -3.5,
        "loss": 0.25,
        "score": "accuracy",
        "accuracy": spread(mixed.score),
        "accuracy_trained": spread(trained.score),
        "task_accuracy": spread(mixed.task_score),
        "graph": {"l1": 0.1, "auc": 0.9, "ari": None},
        "bytes": {"received": 4.0, "sent": 4.0},
        "seconds": {"train": 1.0, "look": 0.5, "infer": 0.25, "mix": 0.125},
        "quarantined": {},
    }
    # Plain values throughout, in the contract's order: what is read back is what was written.
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert list(row)[:5] == ["round", "elbo", "loss", "score", "accuracy"]


def test_a_row_without_any_test_image_is_still_json() -> None:
    nothing = Evaluation(*torch.full((3, 4), torch.nan))
    row = history_row(1, info(), nothing, nothing, Scores(None, None, None))
    assert json.loads(json.dumps(row, allow_nan=False))["accuracy"]["mean"] is None


def test_gain_and_harm_are_against_the_same_client_trained_alone() -> None:
    local = torch.tensor([0.5, 0.6, 0.7, 0.8, torch.nan])
    accuracy = torch.tensor([0.7, 0.6, 0.6, 0.9, 0.2])
    found = against_local(accuracy, local)
    assert found["gain_over_local"] == pytest.approx((0.2 + 0 - 0.1 + 0.1) / 4)
    assert found["below_local"] == 0.25  # equal is not below
    assert against_local(local, local) == {"gain_over_local": 0, "below_local": 0}


def test_seconds_add_up_by_verb() -> None:
    rows = [{"seconds": {"train": 1.0, "mix": 0.5}}, {"seconds": {"train": 2.0, "mix": 0.25}}]
    assert total_seconds(rows) == {"train": 3.0, "mix": 0.75}


TWO = load_federation("permuted:digits:clients=2,groups=2,train=10,order=listed")
DEPLOYED = Evaluation(torch.tensor([0.5, math.nan]), torch.tensor([0.75, 1.0]), torch.tensor([1.0, 2.0]))
TRAINED = Evaluation(torch.tensor([0.125, 1.0]), torch.zeros(2), torch.tensor([3.0, math.inf]))
LOCAL = DEPLOYED._replace(score=torch.tensor([0.25, 0.5]))


def fit_of(weights: list[list[float]], mixed: Evaluation = DEPLOYED) -> Fit:
    """A fit of two clients who rely on candidates so much; nothing else of it is read."""
    predictors = (Predictor({}),) * len(weights[0])
    deployment = Deployment(("local", "mine, tuned")[: len(predictors)], Ensemble(predictors, torch.tensor(weights)))
    return Fit(None, [], None, mixed, TRAINED, deployment, DEPLOYED, 0.0)  # type: ignore[arg-type]


def table(fit: Fit, local: Evaluation | None) -> list[Row]:
    return client_rows(TWO, fit, local)


def test_the_table_of_clients_has_a_row_each_and_gaps_where_nothing_is_known() -> None:
    rows = table(fit_of([[1.0], [1.0]]), LOCAL)
    assert [row["client"] for row in rows] == ["client 0", "client 1"]
    assert [row["group"] for row in rows] == [0, 1]
    assert (rows[0]["train"], rows[0]["validation"], rows[0]["test"]) == (8, 2, 500)
    assert (rows[0]["accuracy"], rows[0]["gain_over_local"], rows[0]["task_accuracy"]) == (0.5, 0.25, 0.75)
    assert (rows[0]["accuracy_trained"], rows[0]["loss_trained"], rows[0]["accuracy_local"]) == (0.125, 3.0, 0.25)
    assert (rows[1]["accuracy"], rows[1]["gain_over_local"], rows[1]["loss_trained"]) == (None, None, None)
    assert (rows[1]["loss"], rows[1]["accuracy_local"]) == (2.0, 0.5)


def test_the_table_of_clients_has_columns_for_what_there_is() -> None:
    always = ["client", "group", "train", "validation", "test", "accuracy", "task_accuracy", "loss"]
    always += ["accuracy_trained", "loss_trained"]
    local, chosen = (
        ["accuracy_local", "gain_over_local"],
        ["accuracy_mixed", "relies on local", "relies on mine, tuned"],
    )
    one, two = fit_of([[1.0], [1.0]]), fit_of([[0.5, 0.5], [0.5, 0.5]])
    for fit, against, columns in (
        (one, None, always),
        (one, LOCAL, always + local),
        (two, None, always + chosen),
        (two, LOCAL, always + local + chosen),
    ):
        assert [list(row) for row in table(fit, against)] == [columns] * 2


def test_where_there_was_a_choice_it_tells_who_relies_on_what() -> None:
    mixed = DEPLOYED._replace(score=torch.tensor([math.nan, 0.375]))
    rows = table(fit_of([[0.25, 0.75], [1.0, 0.0]], mixed), LOCAL)
    assert [(row["relies on local"], row["relies on mine, tuned"]) for row in rows] == [
        (0.25, 0.75),
        (1.0, 0.0),
    ]
    assert [row["accuracy_mixed"] for row in rows] == [None, 0.375]
    assert [row["accuracy"] for row in rows] == [0.5, None], "of what is deployed, not of the mixed networks"
    assert rows[0]["gain_over_local"] == 0.25


@pytest.mark.parametrize("junk", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_written_as_null_and_shown_as_a_dash(
    junk: float, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = Evaluation(*torch.full((3, 4), torch.nan))
    info = EMInfo(junk, junk, {}, torch.zeros(4), torch.zeros(4), {"train": 1.0})
    row = history_row(1, info, nothing, nothing, Scores(None, None, None))
    read = json.loads(json.dumps(row, allow_nan=False))
    assert read["loss"] is read["elbo"] is read["accuracy"]["mean"] is None
    with tracked(1) as report:
        report(row)
    assert "loss -  accuracy -  bound -" in capsys.readouterr().err
