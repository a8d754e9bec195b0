"""One cell: its numbers are those of the command line, and it says which code, data and clients they are of."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace

import pytest
import torch

from scool_ppl import EM, load_federation
from scool_ppl.base.files import file_sha256
from scool_ppl.errors import InputError, RunError
from scool_ppl.reproduce import reproduce
from scool_ppl.reproduce.cells import run_cell
from scool_ppl.reproduce.experiment import Method
from scool_ppl.runs.store import Store
from scool_ppl.zoo.load import model_path
from tests.helpers.command import scool
from tests.helpers.experiments import COLUMN, LOCAL, tiny


def test_a_cell_is_what_the_command_line_gives(finished, tmp_path):
    command = "fit local --federation permuted:digits:clients=4,groups=2,train=20 --rounds 2 --warmup-epochs 3"
    scool(*command.split(), "--local-epochs=1", "--executor=stacked", "--quiet", "--out", tmp_path / "run")
    row = json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[-1])
    stored = finished.records(COLUMN, LOCAL)[0]
    assert statistics.fmean(stored["test"]["mixed"]["accuracy"]) == pytest.approx(row["accuracy"]["mean"], abs=1e-4)


def test_a_cell_says_which_code_made_it(finished):
    cells = finished.store.records
    codes = {key: cell["code"] for key, cell in cells.items()}
    assert len({code["library"] for code in codes.values()}) == 1
    assert codes["tiny | local | seed 0"]["model"] == file_sha256(model_path("local"))[:12]
    assert codes["tiny | local | seed 0"]["model"] == codes["tiny | local | seed 1"]["model"]
    assert codes["tiny | local | seed 0"]["model"] != codes["tiny | scool_sbm | seed 100"]["model"]


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


def test_a_cell_names_what_cannot_be_run():
    with pytest.raises(InputError, match="unknown model"):
        run_cell(tiny().cell(COLUMN, Method("x", "scool_sbn"), {}, 0))


def test_a_cell_says_which_data_it_saw(finished):
    data = {key: cell["data"] for key, cell in finished.store.records.items()}
    by_seed = {seed: {found for key, found in data.items() if key.endswith(seed)} for seed in ("seed 0", "seed 1")}
    assert [len(found) for found in by_seed.values()] == [1, 1], "one federation a seed"
    assert by_seed["seed 0"] != by_seed["seed 1"]


def test_kept_graphs_come_with_what_is_known_of_the_clients(finished):
    federation = load_federation(COLUMN.federation, seed=0)
    kept = finished.records(COLUMN, LOCAL)[0]["graphs"]
    assert kept["groups"] == list(federation.groups or ())
    assert sorted(kept["groups"]) == [0, 0, 1, 1]
    assert kept["classes"] == [federation.classes(client).tolist() for client in range(4)]
    assert kept["weights"] == {"2": torch.zeros(4, 4).tolist()}, "local-only training learns from nobody"
    assert finished.records(COLUMN, LOCAL)[1]["graphs"] is None, "graphs are those of the first seed"


def test_predictions_are_those_of_every_clients_test_rows():
    cell = tiny(predictions=True, columns=(COLUMN._replace(federation="sine:clients=3"),)).cells(lambda *_: {})
    kept = run_cell(next(cell))["predictions"]
    federation = load_federation("sine:clients=3", seed=0)
    sizes = {"targets": federation.test, "outputs": federation.test, "train_targets": federation.train}
    for name, rows in sizes.items():
        assert [len(own) for own in kept[name]] == [len(own) for own in rows]
    expected = federation.targets[federation.train[1]].flatten().tolist()
    assert [value for row in kept["train_targets"][1] for value in (row if isinstance(row, list) else [row])] == (
        pytest.approx(expected, abs=1e-4)
    )


def test_a_cell_of_private_clients_keeps_what_they_have_spent():
    pytest.importorskip("opacus", reason="opacus is not installed")
    settings = replace(COLUMN.settings, dp_noise=1.0, dp_clip=1.0, dp_evidence_noise=4.0, dp_evidence_clip=3.0)
    spent = {
        model: run_cell(tiny().cell(COLUMN._replace(settings=settings), Method(model, model), {}, 0))["epsilon"]
        for model in ("fedavg", "scool_sbm")
    }
    assert 0 < spent["fedavg"] < spent["scool_sbm"], "evidence costs"
    unbounded = COLUMN._replace(settings=replace(settings, dp_noise=0.0))
    assert run_cell(tiny().cell(unbounded, Method("FedAvg", "fedavg"), {}, 0))["epsilon"] is None


def test_what_a_portfolio_deploys_is_what_its_fit_says(tmp_path):
    hedge = Method("Hedge", "hedge", deployed="deployed")
    results = reproduce(tiny(methods=(hedge,), seeds=(0,)), Store(tmp_path / "s.json"), progress=False)
    federation = load_federation(COLUMN.federation, seed=0)
    settings = replace(COLUMN.settings, seed=0)
    em = EM(settings.model("hedge", federation), settings.clients(federation), settings.schedule, seed=0)
    fit = em.fit(settings.rounds, progress=False)
    (found,) = results.by_client(COLUMN, hedge)
    torch.testing.assert_close(found, fit.deployed.score.double(), rtol=0, atol=1e-4)
    (record,) = results.records(COLUMN, hedge)
    held_back = fit.deployment.evaluate(em.clients, "validation").score
    assert record["validation"]["deployed"]["accuracy"] == pytest.approx(held_back.tolist(), abs=1e-4)
    assert results.values(COLUMN, hedge, "accuracy") == [pytest.approx(float(fit.deployed.score.mean()), abs=1e-4)]


def test_who_has_one_network_deploys_no_portfolio(finished):
    with pytest.raises(RunError, match=r"'Local' deploys one network of each client.*use chosen"):
        finished.by_client(COLUMN, LOCAL._replace(deployed="deployed"))
