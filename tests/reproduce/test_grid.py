"""Experiments: the grid, the result store, tables that come only from it, and every file of experiments/."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from pathlib import Path

import pytest
import torch

from scool_ppl.cli.main import main
from scool_ppl.data.own import Arrays
from scool_ppl.data.specs import load_federation
from scool_ppl.errors import InputError, RunError
from scool_ppl.reproduce import panels, reproduce
from scool_ppl.reproduce.catalogue import experiment_names, experiment_title, load_experiment
from scool_ppl.reproduce.cells import run_cell
from scool_ppl.reproduce.experiment import SCALES, Column, Experiment, Method
from scool_ppl.reproduce.render import clients_csv, details, document, head, main_table, refreshed
from scool_ppl.reproduce.results import Results
from scool_ppl.reproduce.scales import SMOKE
from scool_ppl.reproduce.store import Store
from scool_ppl.zoo.load import load_model

COLUMN = Column("tiny", "permuted:digits:clients=4,groups=2,train=20", SMOKE)
LOCAL, SBM = Method("Local", "local"), Method("SBM", "scool_sbm", ({}, {"n_eff": 2.0}))


def tiny(**changes):
    values = {"title": "A tiny one", "columns": (COLUMN,), "methods": (LOCAL, SBM), "seeds": (0, 1)}
    return Experiment(**{**values, **changes})


def record(mixed, trained, *, validation=None, losses=((1.0, 1.0), (1.0, 1.0))):
    """A stored cell of two clients: test accuracies, validation accuracies, validation losses (mixed, trained)."""

    def split(accuracies):
        return {
            when: {"accuracy": list(own), "task_accuracy": list(own), "loss": list(loss)}
            for when, own, loss in zip(("mixed", "trained"), accuracies, losses, strict=True)
        }

    both = {"test": split((mixed, trained)), "validation": split(validation or (mixed, trained))}
    return {**both, "graph": {}, "history": {}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store") / "tiny.json")
    return reproduce(tiny(graphs=(2,)), store, progress=False)


def without_times(store: Store) -> dict:
    return {key: {k: v for k, v in cell.items() if k != "seconds"} for key, cell in store.records.items()}


def test_the_grid_runs_the_candidates_once_and_the_chosen_ones_for_every_seed(finished):
    keys = set(finished.store.records)
    chosen = "scool_sbm" if finished.chosen(COLUMN, SBM) == {} else "scool_sbm n_eff=2.0"
    assert keys == {
        "tiny | scool_sbm | seed 100",
        "tiny | scool_sbm n_eff=2.0 | seed 100",
        *(f"tiny | {model} | seed {seed}" for model in ("local", chosen) for seed in (0, 1)),
    }


def test_what_candidates_do_on_test_data_is_not_kept(finished):
    for key, cell in finished.store.records.items():
        assert ("test" in cell) == ("seed 100" not in key)
        assert cell["validation"] is not None


def test_a_deleted_cell_comes_back_with_the_same_numbers(finished, tmp_path):
    path = tmp_path / "tiny.json"
    path.write_text(finished.store.path.read_text())
    before = without_times(Store(path))
    content = json.loads(path.read_text())
    del content["tiny | local | seed 1"]
    path.write_text(json.dumps(content))
    again = reproduce(finished.experiment, Store(path), progress=False)
    assert without_times(again.store) == before
    assert without_times(Store(path)) == before


def test_what_is_stored_is_not_run_again(finished, monkeypatch):
    monkeypatch.setattr("scool_ppl.reproduce.grid.run_cell", lambda *_, **__: pytest.fail("ran a stored cell"))
    reproduce(finished.experiment, Store(finished.store.path), progress=False)


def test_a_changed_request_is_run_again(finished):
    changed = Column("tiny", COLUMN.federation, SMOKE.__class__(rounds=3, warmup_epochs=1, executor="stacked"))
    cell = tiny(columns=(changed,)).cell(changed, LOCAL, {}, 0)
    assert cell.key in finished.store.records
    assert finished.store.get(cell) is None


@pytest.mark.slow
def test_cells_in_other_processes_give_the_same_numbers(finished, tmp_path):
    again = reproduce(finished.experiment, Store(tmp_path / "tiny.json"), jobs=2, progress=False)
    assert without_times(again.store) == without_times(finished.store)


def test_a_cell_is_what_the_command_line_gives(finished, tmp_path):
    main_arguments = "fit local --federation permuted:digits:clients=4,groups=2,train=20 --rounds 2 --warmup-epochs 3"
    with pytest.raises(SystemExit):
        main([*main_arguments.split(), "--local-epochs", "1", "--executor", "stacked", "--out", str(tmp_path / "run")])
    row = json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[-1])
    stored = finished.records(COLUMN, LOCAL)[0]
    assert statistics.fmean(stored["test"]["mixed"]["accuracy"]) == pytest.approx(row["accuracy"]["mean"], abs=1e-4)


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


def test_a_network_whose_validation_loss_is_no_number_is_not_deployed(tmp_path):
    experiment, store = tiny(methods=(LOCAL,), seeds=(0,)), Store(tmp_path / "s.json")
    losses = ((None, None), (2.0, 2.0))
    store.put(experiment.cell(COLUMN, LOCAL, {}, 0), record((0.1, 0.1), (0.6, 0.6), losses=losses))
    assert Results(experiment, store).values(COLUMN, LOCAL, "accuracy") == [pytest.approx(0.6)]


def test_a_cell_says_which_code_made_it(finished):
    cells = finished.store.records
    codes = {key: cell["code"] for key, cell in cells.items()}
    assert len({code["library"] for code in codes.values()}) == 1
    assert codes["tiny | local | seed 0"]["model"] == codes["tiny | local | seed 1"]["model"]
    assert codes["tiny | local | seed 0"]["model"] != codes["tiny | scool_sbm | seed 100"]["model"]


@pytest.mark.parametrize(("deployed", "expected"), [("mixed", 0.5), ("trained", 0.3), ("chosen", 0.7)])
def test_the_network_that_counts(tmp_path, deployed, expected):
    method = Method("Local", "local", deployed=deployed)
    experiment, store = tiny(methods=(method,), seeds=(0,)), Store(tmp_path / "s.json")
    losses = ((1.0, 3.0), (2.0, 2.0))  # the first client does better mixed, the second trained
    store.put(experiment.cell(COLUMN, method, {}, 0), record((0.8, 0.2), (0.0, 0.6), losses=losses))
    assert Results(experiment, store).values(COLUMN, method, "accuracy") == [pytest.approx(expected)]


def test_measures_against_local_and_spread(tmp_path):
    method = Method("Fixed", "oracle")
    experiment, store = tiny(methods=(LOCAL, method), seeds=(0,)), Store(tmp_path / "s.json")
    store.put(experiment.cell(COLUMN, LOCAL, {}, 0), record((0.5, 0.5), (0.5, 0.5)))
    store.put(experiment.cell(COLUMN, method, {}, 0), record((0.9, 0.4), (0.9, 0.4)))
    results = Results(experiment, store)
    wanted = {
        "accuracy": 0.65,
        "gain": 0.15,
        "harmed": 0.5,
        "improved": 0.5,
        "worst10": 0.4,
        "worst20": 0.4,
        "std": 0.25,
    }
    for measure, value in wanted.items():
        assert results.values(COLUMN, method, measure) == [pytest.approx(value)], measure
    assert main_table(results) == (["method", "tiny"], [["Local", "50.0"], ["Fixed", "65.0"]])


def test_a_table_of_an_incomplete_store_says_which_cell_is_missing(tmp_path):
    results = Results(tiny(), Store(tmp_path / "s.json"))
    with pytest.raises(RunError, match=r"tiny \| local \| seed 0. is missing"):
        document(results)


def test_hostile_clients_are_attacked_by_and_left_out_of_the_numbers(tmp_path):
    column = COLUMN._replace(attack="scaled", share=0.5)
    experiment = tiny(columns=(column,), methods=(Method("FedAvg", "fedavg", deployed="mixed"),), seeds=(0,))
    results = reproduce(experiment, Store(tmp_path / "s.json"), progress=False)
    (record,) = results.records(column, experiment.methods[0])
    assert [value is None for value in record["test"]["mixed"]["accuracy"]].count(True) == 2
    assert [value is None for value in record["validation"]["trained"]["loss"]].count(True) == 2
    # FedAvg gives everybody an equal share.
    assert results.values(column, experiment.methods[0], "trust") == [pytest.approx(1.0)]
    plain = experiment.cell(COLUMN, experiment.methods[0], {}, 0)
    assert results.store.get(plain) is None


def test_two_commands_keep_each_others_cells(tmp_path):
    experiment = tiny()
    one, other = (Store(tmp_path / "s.json") for _ in range(2))
    first, second = (experiment.cell(COLUMN, LOCAL, {}, seed) for seed in (0, 1))
    one.put(first, record((0.1, 0.1), (0.1, 0.1)))
    other.put(second, record((0.2, 0.2), (0.2, 0.2)))
    assert set(Store(one.path).records) == {first.key, second.key}


def test_a_damaged_cell_is_named(finished, tmp_path):
    path = tmp_path / "tiny.json"
    content = json.loads(finished.store.path.read_text())
    del content["tiny | local | seed 1"]["test"]
    path.write_text(json.dumps(content))
    with pytest.raises(RunError, match=r"tiny \| local \| seed 1. in tiny.json is damaged: it has no test"):
        document(Results(finished.experiment, Store(path)))


def test_the_section_of_a_document_is_renewed_and_the_rest_stays(tmp_path):
    mine, report = tmp_path / "mine.py", tmp_path / "report.md"
    mine.write_text(
        "from scool_ppl.reproduce import Column, Experiment, Method\n"
        "from scool_ppl.reproduce.scales import SMOKE\n\n\n"
        "def experiment(scale):\n"
        "    column = Column('tiny', 'permuted:digits:clients=4,groups=2,train=20', SMOKE)\n"
        "    return Experiment('Mine', (column,), (Method('Local [only]', 'local'),), seeds=(0,))\n"
    )
    report.write_text("before\n<!-- mine-smoke -->\nold\n<!-- end mine-smoke -->\nafter\n")
    with pytest.raises(SystemExit) as end:
        main(["reproduce", str(mine), "--out", str(tmp_path / "out"), "--quiet", "--document", str(report)])
    assert end.value.code == 0
    begin, section, rest = re.split(r"<!-- (?:end )?mine-smoke -->", report.read_text())
    assert (begin, rest) == ("before\n", "\nafter\n")
    assert section.strip() == (tmp_path / "out" / "mine-smoke.md").read_text().strip()
    assert "| Local [only] | " in section


def test_an_interrupted_experiment_says_where_its_cells_are(tmp_path, monkeypatch, capsys):
    def stop(cell, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr("scool_ppl.reproduce.grid.run_cell", stop)
    with pytest.raises(SystemExit) as end:
        main(["reproduce", "scool_fig6", "--out", str(tmp_path), "--quiet"])
    assert end.value.code == 130
    assert f"{tmp_path / 'scool_fig6-smoke.json'}, the same command goes on" in capsys.readouterr().err


def test_a_cell_that_fails_is_named_and_the_others_stay(tmp_path):
    broken = Method("broken", "scool_sbm", ({"n_eff": -1.0},))
    store = Store(tmp_path / "s.json")
    with pytest.raises(InputError, match=r"cell 'tiny \| scool_sbm n_eff=-1.0 \| seed 0'"):
        reproduce(tiny(methods=(LOCAL, broken), seeds=(0,)), store, progress=False)
    assert list(Store(store.path).records) == ["tiny | local | seed 0"]


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "{"])
def test_a_damaged_store_is_refused_and_kept(tmp_path, content):
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"s\.json"):
        Store(path)
    assert path.read_text() == content


def test_the_clients_table_has_a_row_a_client_and_seed(finished):
    rows = list(csv.DictReader(io.StringIO(clients_csv(finished))))
    assert len(rows) == 2 * 2 * 4
    first = finished.records(COLUMN, LOCAL)[0]["test"]["trained"]["loss"][3]
    assert float(rows[3]["loss_trained"]) == first


def test_settings_are_part_of_a_choice_and_unknown_ones_are_named():
    cell = tiny().cell(COLUMN, LOCAL, {"--learning-rate": 0.3}, 7)
    assert (cell.settings.learning_rate, cell.settings.seed, cell.hyperparameters) == (0.3, 7, {})
    with pytest.raises(InputError, match="did you mean '--learning-rate'"):
        _ = tiny().cell(COLUMN, LOCAL, {"--learning-rat": 0.3}, 7).settings


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


def test_details_leave_out_what_repeats_the_accuracy(tmp_path):
    def heads(own):
        experiment, store = tiny(methods=(LOCAL,), seeds=(0,)), Store(tmp_path / f"{own}.json")
        stored = record((0.5, 0.5), (0.5, 0.5)) | _EXTRAS
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
        store.put(cell, record((0.5, 0.5), (0.5, 0.5)) | _EXTRAS)
        return document(Results(experiment, store)).partition("\n")[0]

    assert "for the others" not in said("mixed", "trained")
    assert "for the others" in said("mixed", "chosen")


_EXTRAS = {"graph": {"l1": None, "auc": None, "ari": None}, "history": {"received": [0.0]}, "seconds": {"train": 0.0}}


def test_legends_cover_nothing():
    figure, axes = panels.panels(["left", "right"])
    for ax in axes:
        series = {f"method number {place}": ([1, 2], [[place, place]]) for place in range(9)}
        panels.draw_series(ax, series, xlabel="round", ylabel="accuracy, %")
    panels.with_legend(figure).draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(series)
    inside = figure.bbox
    for box in (legend.get_window_extent(), *(ax.get_tightbbox() for ax in axes)):
        assert inside.x0 <= box.x0 < box.x1 <= inside.x1
        assert inside.y0 <= box.y0 < box.y1 <= inside.y1
    assert all(legend.get_window_extent().y1 <= ax.get_tightbbox().y0 for ax in axes)


def test_styles_of_many_series_differ():
    styles = [str(panels.style_of(place)) for place in range(21)]
    assert len(set(styles)) == 21
    assert [panels.style_of(place) for place in range(len(panels.STYLES))] == list(panels.STYLES)


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_runs_at_smoke_scale(name, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["reproduce", name, "--out", str(tmp_path), "--quiet"])
    assert end.value.code == 0
    table = (tmp_path / f"{name}-smoke.md").read_text()
    assert "| method |" in table
    assert "nan" not in table
    assert all((tmp_path / line).exists() for line in capsys.readouterr().out.split() if line.endswith(".png"))
    pictures = load_experiment(name, "smoke").figures is not None
    assert bool(list(tmp_path.glob("*.png"))) == pictures


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_can_be_built_at_every_scale(name, scale):
    experiment = load_experiment(name, scale)
    assert experiment_title(name)
    assert scale == "smoke" or len(experiment.seeds) >= 3
    known = {method.label for method in experiment.methods}
    assert set(experiment.paper) <= known
    for cell in [*experiment.tuning(), *experiment.cells(lambda _, method: method.candidates[-1])]:
        assert cell.settings.seed == cell.seed
        assert json.dumps(cell.request)
    efforts = {len(method.candidates) for method in experiment.methods}
    assert len(efforts) == 1, "every method has the same number of candidates"
    for method in experiment.methods:
        for choice in method.candidates:
            own = experiment.cell(experiment.columns[0], method, choice, 0).hyperparameters
            assert (
                load_model(method.model, 20, truth=_ring(20), **own)
                if method.model == "oracle"
                else load_model(method.model, 20, **own)
            )


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", experiment_names())
def test_every_number_of_a_paper_has_its_place_in_the_table(name, scale, tmp_path):
    experiment = load_experiment(name, scale)
    results = Results(experiment, Store(tmp_path / "none.json"))
    heads = {head(results, column, measure) for column in experiment.columns for measure in experiment.measures}
    assert {label for row in experiment.paper.values() for label in row} <= heads


def stand_in(dataset, *_, **__):
    """Labels as in the named dataset, small noise for images."""
    classes, train, test = {"mnist": (10, 60_000, 10_000), "cifar10": (10, 50_000, 10_000)}.get(
        dataset, (100, 50_000, 10_000)
    )
    random = torch.Generator().manual_seed(0)
    parts = [(torch.rand(size, 1, 2, 2, generator=random), torch.arange(size) % classes) for size in (train, test)]
    return Arrays(*parts[0], *parts[1], classes)


@pytest.mark.parametrize("name", experiment_names())
def test_federations_of_the_papers_sizes_can_be_dealt(name, monkeypatch):
    monkeypatch.setattr("scool_ppl.data.specs.load_dataset", stand_in)
    for column in load_experiment(name, "paper").columns:
        if "features:" not in column.federation:
            found = load_federation(column.federation)
            assert all(len(rows) for rows in (*found.train, *found.validation, *found.test))


def test_cobos_cross_device_groups_are_the_papers(monkeypatch):
    monkeypatch.setattr("scool_ppl.data.specs.load_dataset", stand_in)
    device = load_experiment("cobo_table2", "paper").columns[1]
    groups = load_federation(device.federation).groups
    assert sorted(groups.count(group) for group in set(groups)) == [6, 6, 7, 7, 8, 8, 9, 9, 10, 10]


@pytest.mark.parametrize("name", experiment_names())
def test_executors_are_not_chosen_by_the_clock(name):
    for scale in SCALES:
        assert "auto" not in {column.settings.executor for column in load_experiment(name, scale).columns}


def _ring(size):
    return torch.eye(size).roll(1, 0)


def test_a_cell_names_what_cannot_be_run():
    with pytest.raises(InputError, match="unknown model"):
        run_cell(tiny().cell(COLUMN, Method("x", "scool_sbn"), {}, 0))


def test_the_command_lists_experiments_and_refuses_unknown_ones(capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["reproduce"])
    listing = capsys.readouterr().out
    assert all(name in listing for name in experiment_names())
    document_without, faulty = tmp_path / "without.md", tmp_path / "faulty.py"
    document_without.write_text("nothing")
    faulty.write_text("def experiment(scale):\n    return 1 + 'one'\n")
    for arguments, words in (
        (["scool_tabel2"], "did you mean 'scool_table2'"),
        (["scool_table2", "--scale", "huge"], "unknown scale 'huge'"),
        (["scool_table2", "--jobs", "0"], "jobs is 0"),
        (["scool_table2", "--document", str(document_without)], "has no section"),
        ([str(faulty)], f"experiment of '{faulty}' failed: TypeError"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["reproduce", *arguments, "--out", str(tmp_path / "out")])
        assert end.value.code == 2
        assert words in capsys.readouterr().err


FOLDER = Path(__file__).resolve().parents[1] / "experiments"
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


@pytest.mark.parametrize(("path", "section"), SECTIONS)
def test_the_tables_of_the_results_are_what_the_stores_say(path, section):
    name, scale = section.rsplit("-", 1)
    results = Results(load_experiment(name, scale), Store(DOCUMENTS[path] / f"{section}.json"))
    text = path.read_text()
    assert refreshed(text, section, document(results)) == text
