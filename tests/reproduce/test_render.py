"""Tables of an experiment: they come from the store and nothing else, and those of the documents are what it says."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from scool_ppl.errors import InputError
from scool_ppl.reproduce.catalogue import experiment_names, load_experiment
from scool_ppl.reproduce.experiment import Method
from scool_ppl.reproduce.render import choices, client_rows, details, document, head, main_table, refreshed, training
from scool_ppl.reproduce.results import Results
from scool_ppl.runs.store import Store
from tests.helpers.experiments import COLUMN, EXTRAS, LOCAL, filled, record, tiny


def test_the_clients_table_has_a_row_a_client_and_seed(finished):
    rows = client_rows(finished)
    assert len(rows) == 2 * 2 * 4
    first = finished.records(COLUMN, LOCAL)[0]["test"]["trained"]["loss"][3]
    assert rows[3]["loss_trained"] == first


def test_details_leave_out_what_repeats_the_accuracy(tmp_path):
    def heads(own):
        experiment, store = tiny(methods=(LOCAL,), seeds=(0,)), Store(tmp_path / f"{own}.json")
        stored = record((0.5, 0.5), (0.5, 0.5)) | EXTRAS
        stored["test"]["mixed"]["task_accuracy"] = [own, own]
        store.put(experiment.cell(COLUMN, LOCAL, {}, 0), stored)
        return details(Results(experiment, store), COLUMN).partition("\n")[0]

    assert "on own classes" in heads(0.8)
    assert "on own classes" not in heads(0.5)
    assert "std over clients" in heads(0.5)


def test_which_networks_count_is_said_once(tmp_path):
    def said(*kinds):
        methods = tuple(Method(kind, "local", deployed=kind) for kind in kinds)
        experiment, store = tiny(methods=methods, seeds=(0,)), Store(tmp_path / "s.json")
        cell = experiment.cell(COLUMN, methods[0], {}, 0)
        store.put(cell, record((0.5, 0.5), (0.5, 0.5)) | EXTRAS)
        return document(Results(experiment, store)).partition("\n")[0]

    assert "for the others" not in said("mixed", "trained")
    assert "for the others" in said("mixed", "chosen")


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", experiment_names())
def test_every_number_of_a_paper_has_its_place_in_the_table(name, scale, tmp_path):
    experiment = load_experiment(name, scale)
    results = Results(experiment, Store(tmp_path / "none.json"))
    heads = {head(results, column, measure) for column in experiment.columns for measure in experiment.measures}
    assert {label for row in experiment.paper.values() for label in row} <= heads


FOLDER = Path(__file__).resolve().parents[2] / "experiments"


# Document -> where the stores of its sections are.
DOCUMENTS = {FOLDER / "RESULTS.md": FOLDER / "results", FOLDER / "robustness" / "RESULTS.md": FOLDER / "robustness"}


SECTIONS = [
    pytest.param(path, section, id=section)
    for path in DOCUMENTS
    for section in re.findall(r"^<!-- (?!end )(\S+) -->$", path.read_text(), flags=re.MULTILINE)
]


def test_there_are_results():
    assert len(SECTIONS) >= 9
    stores = {path.stem for folder in DOCUMENTS.values() for path in folder.glob("*.json")}
    assert stores == {section.id for section in SECTIONS}


def part_shown(text, name, scale):
    """The part of an experiment that the command above its section asks for."""
    command = f"scool reproduce {name} --scale {scale} "
    words = shlex.split(next((line for line in text.splitlines() if line.strip().startswith(command)), ""))
    given = {
        option: [value for word, value in pairwise(words) if word == option]
        for option in ("--method", "--column", "--seeds")
    }
    seeds = int(given["--seeds"][0]) if given["--seeds"] else None
    return load_experiment(name, scale).part(given["--method"], given["--column"], seeds)


@pytest.mark.parametrize(("path", "section"), SECTIONS)
def test_the_tables_of_the_results_are_what_the_stores_say(path, section):
    text = path.read_text()
    results = Results(part_shown(text, *section.rsplit("-", 1)), Store(DOCUMENTS[path] / f"{section}.json"))
    assert refreshed(text, section, document(results)) == text


def test_the_main_table_has_the_papers_number_beside_ours(tmp_path):
    method = Method("Fixed", "oracle")
    experiment = tiny(methods=(LOCAL, method), seeds=(0,), paper={"Fixed": {"tiny": "66.6 ± 1"}})
    cells = [record((0.5, 0.5), (0.5, 0.5)), record((0.9, 0.4), (0.9, 0.4))]
    results = filled(Store(tmp_path / "s.json"), experiment, *cells)
    heads, rows = main_table(results)
    assert len(heads) == 3
    assert [row[0] for row in rows] == ["Local", "Fixed"]
    assert "66.6 ± 1" in rows[1]
    assert "65.0" in rows[1]
    bare = filled(Store(tmp_path / "t.json"), tiny(methods=(LOCAL, method), seeds=(0,)), *cells)
    assert main_table(bare) == (["method", "tiny"], [["Local", "50.0"], ["Fixed", "65.0"]])


def test_the_chosen_candidate_is_named_with_those_it_was_chosen_from(finished):
    text = choices(finished)
    assert "`scool_sbm`, `scool_sbm n_eff=2.0`" in text
    assert "seed 100" in text
    assert choices(Results(tiny(methods=(LOCAL,)), finished.store)) == ""


def test_training_is_said_in_words():
    assert training(COLUMN) == ("2 rounds of 1 epoch (the first 3 epochs), network auto, SGD at 0.1, batches of 10")
    private = replace(COLUMN.settings, dp_noise=0.0, dp_clip=0.5, dp_delta=1e-3)
    words = "private with noise 0 and clip 0.5, evidence as it is, delta 0.001"
    assert training(COLUMN._replace(settings=private)).endswith(f", {words}")
    noised = replace(private, dp_evidence_noise=0.0, dp_evidence_clip=3.0)
    assert "noise 0 and clip 3 of losses" in training(COLUMN._replace(settings=noised))


def test_a_method_that_is_not_run_in_a_column_has_no_numbers_there(tmp_path):
    """Nor a choice, nor a gain over it where it is training alone."""
    other = COLUMN._replace(label="other")
    local = Method("Local", "local", ({}, {"--learning-rate": 0.5}), only=("tiny",))
    sbm = Method("SBM", "scool_sbm", ({}, {"n_eff": 2.0}))
    experiment = tiny(columns=(COLUMN, other), methods=(local, sbm), seeds=(0,))
    store = Store(tmp_path / "s.json")
    for cell in [*experiment.tuning(), *experiment.cells(lambda _, method: method.candidates[0])]:
        store.put(cell, record((0.5,), (0.5,), **EXTRAS))
    results = Results(experiment, store)
    found = document(results)
    assert "| Local | 50.0 | - |" in found
    assert "| SBM | 50.0 | 50.0 |" in found
    assert "`local`, `local --learning-rate 0.5` | `local` | - |" in found
    assert {(row["column"], row["method"]) for row in client_rows(results)} == {
        *(("tiny", "Local"), ("tiny", "SBM"), ("other", "SBM"))
    }


def test_what_private_clients_have_spent_is_in_the_details(tmp_path):
    experiment = tiny(methods=(LOCAL,), seeds=(0, 1), measures=("accuracy", "epsilon"))
    cells = [record((0.5,), (0.5,), **EXTRAS, epsilon=spent) for spent in (2.0, 3.0)]
    results = filled(Store(tmp_path / "s.json"), experiment, *cells)
    assert "| Local | 50.0 ± 0.0 | 2.5 ± 0.7 |" in document(results)


@pytest.mark.parametrize("text", ["", "<!-- a -->", "<!-- end a --><!-- a -->", "<!-- a --><!-- a --><!-- end a -->"])
def test_a_document_without_its_section_is_refused(text):
    with pytest.raises(InputError, match="has no section"):
        refreshed(text, "a", "new")
