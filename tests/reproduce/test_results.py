"""What stored cells come to: the chosen candidate, the networks that count, and every measure, by hand."""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

import pytest

from scool_ppl.errors import InputError, RunError
from scool_ppl.reproduce.experiment import Method
from scool_ppl.reproduce.measures import MEASURES
from scool_ppl.reproduce.render import document, overview
from scool_ppl.reproduce.results import Results
from scool_ppl.runs.store import Store
from tests.helpers.experiments import COLUMN, LOCAL, SBM, filled, record, tiny


def test_the_choice_looks_at_validation_and_not_at_test(tmp_path):
    experiment, store = tiny(seeds=(0,)), Store(tmp_path / "s.json")
    first, second = SBM.candidates
    for choice, test, validation in ((first, (0.9, 0.9), (0.5, 0.5)), (second, (0.1, 0.1), (0.6, 0.6))):
        store.put(experiment.cell(COLUMN, SBM, choice, 100), record(test, test, validation=(validation, validation)))
    assert Results(experiment, store).chosen(COLUMN, SBM) == second


def test_a_candidate_whose_score_is_no_number_is_not_chosen(tmp_path):
    experiment, store = tiny(seeds=(0,)), Store(tmp_path / "s.json")
    first, second = SBM.candidates
    for choice, found in ((first, (None, None)), (second, (0.6, 0.6))):
        store.put(experiment.cell(COLUMN, SBM, choice, 100), record(found, found))
    assert Results(experiment, store).chosen(COLUMN, SBM) == second


@pytest.mark.parametrize("turned", [False, True])
def test_candidates_that_differ_by_rounding_are_decided_by_their_order(tmp_path, turned):
    """Three images a client: 1, 1 and 2 right of 3 is as good as 2, 2 and 0, of which four digits make .4444 and .44447."""
    experiment, store = tiny(seeds=(0,)), Store(tmp_path / "s.json")
    first, second = SBM.candidates
    found = ((0.3333, 0.3333, 0.6667), (0.6667, 0.6667, 0.0))
    for choice, numbers in zip((first, second), found[:: -1 if turned else 1], strict=True):
        store.put(experiment.cell(COLUMN, SBM, choice, 100), record(numbers, numbers))
    assert Results(experiment, store).chosen(COLUMN, SBM) == first


def test_a_network_whose_validation_loss_is_no_number_is_not_deployed(tmp_path):
    experiment, store = tiny(methods=(LOCAL,), seeds=(0,)), Store(tmp_path / "s.json")
    losses = ((None, None), (2.0, 2.0))
    store.put(experiment.cell(COLUMN, LOCAL, {}, 0), record((0.1, 0.1), (0.6, 0.6), losses=losses))
    assert Results(experiment, store).values(COLUMN, LOCAL, "accuracy") == [pytest.approx(0.6)]


@pytest.mark.parametrize(("deployed", "expected"), [("mixed", 0.5), ("trained", 0.3), ("chosen", 0.7)])
def test_the_network_that_counts(tmp_path, deployed, expected):
    method = Method("Local", "local", deployed=deployed)
    experiment, store = tiny(methods=(method,), seeds=(0,)), Store(tmp_path / "s.json")
    losses = ((1.0, 3.0), (2.0, 2.0))  # the first client does better mixed, the second trained
    store.put(experiment.cell(COLUMN, method, {}, 0), record((0.8, 0.2), (0.0, 0.6), losses=losses))
    assert Results(experiment, store).values(COLUMN, method, "accuracy") == [pytest.approx(expected)]


def test_a_table_of_an_incomplete_store_says_which_cell_is_missing(tmp_path):
    results = Results(tiny(), Store(tmp_path / "s.json"))
    with pytest.raises(RunError, match=r"tiny \| local \| seed 0. is missing"):
        document(results)


def test_a_damaged_cell_is_named(finished, tmp_path):
    path = tmp_path / "tiny.json"
    content = json.loads(finished.store.path.read_text())
    del content["tiny | local | seed 1"]["test"]
    path.write_text(json.dumps(content))
    with pytest.raises(RunError, match=r"tiny \| local \| seed 1. in tiny.json is damaged: it has no test"):
        document(Results(finished.experiment, Store(path)))


def test_every_measure_is_what_it_says(tmp_path):
    """Six clients, of whom the fourth has no test images."""
    method = Method("Fixed", "oracle", deployed="mixed")
    mixed, trained = (0.9, 0.4, 0.7, None, 0.5, 0.2), (0.8, 0.3, 0.6, None, 0.6, 0.1)
    alone = (0.5, 0.5, 0.6, None, 0.5, 0.5)
    losses = ((1.0, 2.0, 3.0, None, 1.5, 0.5), (9.0,) * 6)
    more = {
        "graph": {"l1": 0.25, "auc": 0.75, "ari": 0.5},
        "trust": {"hostile": 0.1, "honest": 0.4},
        "history": {"received": [1e6, 3e6]},
        "seconds": {"train": 2.0, "look": 0.5},
        "epsilon": 3.5,
    }
    experiment = tiny(methods=(LOCAL, method), seeds=(0,))
    results = filled(
        Store(tmp_path / "s.json"),
        experiment,
        record(alone, alone, losses=losses),
        record(mixed, trained, losses=losses, **more),
    )
    known = (0.9, 0.4, 0.7, 0.5, 0.2)
    wanted = {
        "accuracy": statistics.fmean(known),
        "std": statistics.pstdev(known),
        "worst10": 0.2,
        "worst20": 0.2,
        "gain": statistics.fmean((0.4, -0.1, 0.1, 0.0, -0.3)),
        "below": 2 / 5,
        "improved": 2 / 5,
        "task": statistics.fmean(known),
        "mixed": statistics.fmean(known),
        "trained": statistics.fmean((0.8, 0.3, 0.6, 0.6, 0.1)),
        "loss": 8 / 5,
        "perplexity": math.exp(8 / 5),
        "r2": statistics.fmean(known),
        "l1": 0.25,
        "auc": 0.75,
        "ari": 0.5,
        "trust": 0.25,
        "received": 3e6,
        "seconds": 2.5,
        "epsilon": 3.5,
    }
    compact_only = {"regret", "l1_first", "beyond", "worst_gain", "stack", "single"}
    assert set(wanted) | compact_only == set(MEASURES)
    for measure, value in wanted.items():
        assert results.values(COLUMN, method, measure) == [pytest.approx(value)], measure
    for measure in compact_only:
        assert results.values(COLUMN, method, measure) is None, measure


def test_the_worst_fifth_is_the_lower_half_of_ten_in_five(tmp_path):
    accuracies = tuple(0.1 * place for place in (3, 1, 5, 2, 9, 8, 7, 6, 4, 10))
    results = filled(Store(tmp_path / "s.json"), tiny(methods=(LOCAL,), seeds=(0,)), record(accuracies, accuracies))
    assert results.values(COLUMN, LOCAL, "worst10") == [pytest.approx(0.1)]
    assert results.values(COLUMN, LOCAL, "worst20") == [pytest.approx(0.15)]


def test_what_is_undefined_is_none(tmp_path):
    method = Method("Fixed", "oracle")
    cell = record((0.5, 0.5), (0.5, 0.5), graph={"l1": None, "auc": None, "ari": None})
    results = filled(Store(tmp_path / "s.json"), tiny(methods=(method,), seeds=(0,)), cell)
    for measure in ("l1", "trust", "gain", "below", "improved"):
        assert results.values(COLUMN, method, measure) is None


def compact(**accuracy: float) -> dict[str, Any]:
    """A compact cell with these accuracies by what is deployed."""
    test = {kind: {"accuracy": value} for kind, value in accuracy.items()}
    return {"test": test, "graph": {"l1": None}, "received": 1e6, "seconds": {"train": 1.0}}


def test_regret_is_the_distance_to_the_best_over_the_seeds_that_both_have(tmp_path):
    """Whatever a method deploys counts as known; who was run on fewer seeds is compared on those."""
    hedge = Method("Hedge", "hedge", deployed="stack")
    fedavg = Method("FedAvg", "fedavg", ({"--deploy": "stack"},), deployed="stack")
    brief = Method("CoBo", "cobo", deployed="mixed", seeds=1)
    experiment = tiny(methods=(hedge, fedavg, brief), compact=True)
    results = filled(
        Store(tmp_path / "s.json"),
        experiment,
        compact(stack=0.8, single=0.7, mixed=0.6),
        compact(stack=0.5, mixed=0.85),
        compact(mixed=0.81),
        compact(stack=0.9, single=0.7, mixed=0.6),
        compact(stack=0.5, mixed=0.95),
    )
    assert results.values(COLUMN, hedge, "accuracy") == [0.8, 0.9]
    assert results.best(COLUMN, hedge) == ("FedAvg, mixed", pytest.approx(0.05))
    assert results.values(COLUMN, hedge, "regret") == [pytest.approx(0.05)]
    assert results.values(COLUMN, fedavg, "regret") == [pytest.approx(0.4)], "its own mixed networks are better, too"
    assert results.values(COLUMN, brief, "accuracy") == [0.81]
    assert results.values(COLUMN, brief, "regret") == [pytest.approx(0.04)]
    heads, rows = overview(results)
    assert [row[0] for row in rows] == ["Hedge", "FedAvg", "CoBo"]
    assert rows[0][heads.index("worst regret, %")] == "5.00 (tiny)"


def test_a_row_that_is_not_run_in_a_column_is_blank(tmp_path):
    other = COLUMN._replace(label="other")
    only = Method("Oracle", "oracle", deployed="mixed", only=("other",))
    local = Method("Local", "local", deployed="mixed")
    experiment = tiny(columns=(COLUMN, other), methods=(local, only), seeds=(0, 1), compact=True)
    keys = [cell.key for cell in experiment.cells(lambda *_: {})]
    assert keys == [
        *("tiny | local | seed 0", "tiny | local | seed 1"),
        *("other | local | seed 0", "other | oracle | seed 0", "other | local | seed 1", "other | oracle | seed 1"),
    ]
    results = filled(Store(tmp_path / "s.json"), experiment, *[compact(mixed=0.5)] * 6)
    assert results.values(COLUMN, only, "accuracy") is None
    assert results.values(COLUMN, only, "regret") is None
    assert results.values(other, only, "accuracy") == [0.5, 0.5]
    assert "| Oracle | - | 50.0 ± 0.0 |" in document(results)


def test_columns_and_rows_may_have_fewer_seeds():
    column, method = COLUMN._replace(seeds=1), Method("Local", "local", deployed="mixed", seeds=2)
    experiment = tiny(columns=(COLUMN, column._replace(label="b")), methods=(method,), seeds=(5, 6, 7), compact=True)
    assert experiment.seeds_of(COLUMN, method) == (5, 6)
    assert experiment.seeds_of(column, method) == (5,)
    assert experiment.seeds_of(COLUMN, method._replace(seeds=None)) == (5, 6, 7)


@pytest.mark.parametrize(
    "method", [Method("Local", "local"), Method("SBM", "scool_sbm", ({}, {"n_eff": 2.0}), deployed="mixed")]
)
def test_compact_cells_cannot_choose_by_validation_data(method):
    with pytest.raises(InputError, match="chooses by validation data"):
        tiny(methods=(method,), compact=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"deployed": "stak"}, "unknown deployed networks"), ({"only": ("tinny",)}, "unknown column")],
)
def test_names_of_deployments_and_columns_are_checked_at_once(changes, message):
    with pytest.raises(InputError, match=message):
        tiny(methods=(Method("Hedge", "hedge")._replace(**changes),))


def test_deployments_that_only_compact_cells_keep_are_refused_elsewhere():
    with pytest.raises(InputError, match="which only compact cells keep"):
        tiny(methods=(Method("Hedge", "hedge", deployed="stack"),))
