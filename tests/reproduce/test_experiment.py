"""What an experiment is: its cells, their keys and requests, and names that are checked before anything runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scool_ppl.errors import InputError
from scool_ppl.reproduce.experiment import Method, at_scale
from tests.helpers.experiments import COLUMN, LOCAL, SBM, tiny


def test_settings_are_part_of_a_choice_and_unknown_ones_are_named():
    cell = tiny().cell(COLUMN, LOCAL, {"--learning-rate": 0.3}, 7)
    assert (cell.settings.learning_rate, cell.settings.seed, cell.hyperparameters) == (0.3, 7, {})
    with pytest.raises(InputError, match="did you mean '--learning-rate'"):
        _ = tiny().cell(COLUMN, LOCAL, {"--learning-rat": 0.3}, 7).settings


def test_options_of_the_federation_are_part_of_a_choice():
    plain, cell = (tiny().cell(COLUMN, LOCAL, choice, 7) for choice in ({}, {":common": 0.05, "--learning-rate": 0.3}))
    assert cell.federation == f"{COLUMN.federation},common=0.05"
    assert cell.request == {**plain.request, "federation": cell.federation, "settings": cell.request["settings"]}
    assert cell.key == f"{COLUMN.label} | local :common=0.05 --learning-rate 0.3 | seed 7"


@pytest.mark.parametrize("changes", [{"methods": (LOCAL, LOCAL)}, {"columns": ()}, {"seeds": ()}, {"seeds": (100,)}])
def test_an_impossible_experiment_is_refused(changes):
    with pytest.raises(InputError, match="A tiny one"):
        tiny(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"measures": ("accurracy",)}, "did you mean 'accuracy'"),
        ({"accuracy": "own"}, "unknown accuracy"),
        ({"methods": (LOCAL._replace(deployed="mixd"),)}, "did you mean 'mixed'"),
        ({"methods": (LOCAL._replace(candidates=()),)}, "'Local' in experiment 'A tiny one' has no candidates"),
        ({"paper": {"local": {}}}, "did you mean 'Local'"),
    ],
)
def test_names_are_checked_before_anything_runs(changes, words):
    with pytest.raises(InputError, match=words):
        tiny(**changes)


def test_a_part_of_the_grid_has_cells_of_the_whole():
    other = COLUMN._replace(label="other")
    whole = tiny(columns=(COLUMN, other), methods=(LOCAL, SBM._replace(only=("tiny",))), paper={"Local": {"tiny": "1"}})
    assert whole.part() == whole
    part = whole.part(["SBM"], ["other", "tiny"], seeds=1)
    assert [cell.request for cell in part.cells(lambda *_: {})] == [whole.cell(COLUMN, SBM, {}, 0).request]
    assert [cell.key for cell in part.tuning()] == [cell.key for cell in whole.tuning()]
    assert not list(whole.part(columns=["other"], methods=["SBM"]).cells(lambda *_: {}))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"methods": ["local"]}, "unknown method 'local'.*Local"),
        ({"columns": ["tinny"]}, "unknown column 'tinny'.*tiny"),
        ({"seeds": 3}, "seeds is 3, expected 1 to 2"),
        ({"seeds": 0}, "seeds is 0, expected 1 to 2"),
    ],
)
def test_an_unknown_part_is_refused(part, words):
    with pytest.raises(InputError, match=words):
        tiny().part(**part)


def test_rows_that_share_a_cell_run_it_once():
    both = tiny(methods=(LOCAL, Method("Local again", "local", deployed="trained")))
    assert [cell.key for cell in both.cells(lambda *_: {})] == ["tiny | local | seed 0", "tiny | local | seed 1"]


def test_candidates_are_tuned_under_a_seed_of_their_own():
    assert [cell.key for cell in tiny().tuning()] == [
        "tiny | scool_sbm | seed 100",
        "tiny | scool_sbm n_eff=2.0 | seed 100",
    ]
    assert not list(tiny(methods=(LOCAL,)).tuning())


def test_graphs_and_predictions_are_kept_of_the_first_seed():
    kept = tiny(graphs=(1, 2), predictions=True)
    cells = {seed: kept.cell(COLUMN, LOCAL, {}, seed) for seed in (0, 1, 100)}
    assert {seed: (cell.graphs, cell.predictions) for seed, cell in cells.items()} == {
        0: ((1, 2), True),
        1: ((), False),
        100: ((), False),
    }


def test_a_request_names_all_that_numbers_depend_on_and_not_the_device():
    cell = tiny().cell(COLUMN, LOCAL, {"clip": 1.0, "--momentum": 0.5}, 7)
    assert "device" not in cell.request["settings"]
    assert (cell.request["settings"]["momentum"], cell.request["settings"]["seed"]) == (0.5, 7)
    assert cell.request["hyperparameters"] == {"clip": 1.0}
    assert cell.key == "tiny | local clip=1.0 --momentum 0.5 | seed 7"
    device = cell._replace(column=COLUMN._replace(settings=replace(COLUMN.settings, executor="loop")))
    hostile = cell._replace(column=COLUMN._replace(attack="scaled", share=0.5))
    assert len({str(other.request) for other in (cell, device, hostile, cell._replace(graphs=(1,)))}) == 4


def test_a_value_for_a_scale_that_was_not_given_is_refused():
    assert at_scale("small", smoke=1, small=2) == 2
    with pytest.raises(InputError, match="unknown scale 'paper'"):
        at_scale("paper", smoke=1, small=2)
