"""Every experiment of experiments/: it can be built at every scale, and its federations and methods are the papers'."""

from __future__ import annotations

import json

import pytest
import torch

from scool_ppl.data.own import Arrays
from scool_ppl.data.specs import load_federation
from scool_ppl.errors import InputError
from scool_ppl.reproduce.catalogue import experiment_names, experiment_title, load_experiment
from scool_ppl.zoo.load import hyperparameters, load_model

EVERYWHERE = ("smoke", "small", "paper")
MEDIUM = ("scool_table2",)


@pytest.mark.parametrize(
    ("name", "scale"),
    [*((name, scale) for name in experiment_names() for scale in EVERYWHERE), *((name, "medium") for name in MEDIUM)],
)
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
        usual = {name: known.default for name, known in hyperparameters(method.model).items()}
        usual["--learning-rate"] = experiment.columns[0].settings.rate
        asked = [{**usual, **choice} for choice in method.candidates]
        assert all(asked.count(choice) == 1 for choice in asked), f"{method.label} has less to choose from than others"
        for choice in method.candidates:
            own = experiment.cell(experiment.columns[0], method, choice, 0).hyperparameters
            assert (
                load_model(method.model, 20, truth=_ring(20), **own)
                if method.model == "oracle"
                else load_model(method.model, 20, **own)
            )


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
    for scale in EVERYWHERE:
        assert "auto" not in {column.settings.executor for column in load_experiment(name, scale).columns}


def _ring(size):
    return torch.eye(size).roll(1, 0)


def test_the_papers_numbers_stand_beside_runs_on_the_papers_datasets_only():
    assert load_experiment("scool_table2", "smoke").paper == {}
    assert load_experiment("scool_table2", "paper").paper


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no experiment file at"),
        ("scale = 1", "has no function `experiment"),
        ("def experiment(scale):\n    return scale", "returned str, expected an Experiment"),
        ("def experiment(scale):\n    return 1 / 0", r"mine\.py, line 2: ZeroDivisionError"),
    ],
)
def test_a_file_that_is_no_experiment_is_refused(content, words, tmp_path):
    path = tmp_path / "mine.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=words):
        load_experiment(path, "smoke")


def test_experiments_of_folders_are_found_by_name():
    assert "hostile" in experiment_names()
    assert experiment_title("hostile").startswith("Hostile clients")
    with pytest.raises(InputError, match="did you mean 'hostile'"):
        load_experiment("hostil", "smoke")
    with pytest.raises(InputError, match="unknown scale 'huge'"):
        load_experiment("hostile", "huge")
