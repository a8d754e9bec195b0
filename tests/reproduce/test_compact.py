"""Compact cells: their numbers are those of the same fit by hand, for everything that could be deployed."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from scool_ppl import EM, load_federation
from scool_ppl.deploy import RULES, deploy, gains
from scool_ppl.reproduce import reproduce
from scool_ppl.reproduce.cells import run_cell
from scool_ppl.reproduce.experiment import Method
from scool_ppl.runs.store import Store
from scool_ppl.train.hostile import HostileClients
from scool_ppl.workbench import Settings
from tests.helpers.experiments import COLUMN, tiny

HEDGE = Method("Hedge", "hedge", deployed="stack")
STACKED = Method("FedAvg, stacked", "fedavg", ({"--deploy": "stack"},), deployed="stack")


def by_hand(settings: Settings, model: str, spec: str = COLUMN.federation):
    """The EM and its last state, two rounds as in the cell."""
    federation = load_federation(spec, seed=settings.seed)
    em = EM(settings.model(model, federation), settings.clients(federation), settings.schedule, seed=settings.seed)
    state = em.init()
    for _ in range(settings.rounds):
        state, info = em.step(state)
    return em, state, info


def test_the_numbers_are_those_of_the_same_fit_by_hand():
    experiment = tiny(methods=(HEDGE,), seeds=(0,), compact=True)
    found = run_cell(experiment.cell(COLUMN, HEDGE, {}, 0))
    em, state, info = by_hand(replace(COLUMN.settings, seed=0), "hedge")
    expected = {
        "mixed": em.clients.evaluate(state.params),
        "trained": em.clients.evaluate(info.trained),
        "local": em.clients.evaluate(state.beside["local"].params),
        **{name: em.deploy(state, rule).evaluate(em.clients) for name, rule in RULES.items()},
    }
    options = em.candidates(state)
    rest = {name: option for name, option in options.items() if not name.startswith("blocks")}
    expected["without blocks"] = deploy(rest, em.clients, em.portfolio.rule).evaluate(em.clients)
    assert found["test"].keys() == {*expected, "without everybody", "unseen as likely"}
    for kind, evaluation in expected.items():
        numbers = found["test"][kind]
        assert numbers["accuracy"] == pytest.approx(float(evaluation.score.mean()), abs=1e-4)
        assert numbers["worst10"] == pytest.approx(float(evaluation.score.min()), abs=1e-4)
        assert numbers["loss"] == pytest.approx(float(evaluation.loss.mean()), abs=1e-4)
    over = gains(em.clients, em.deploy(state).ensemble, state.beside["local"].params)
    stack = found["test"]["stack"]
    assert stack["gain"] == pytest.approx(float(over.gain.mean()), abs=1e-4)
    assert stack["worst_gain"] == pytest.approx(float(over.gain.min()), abs=1e-4)
    assert stack["beyond"] == over.harmed()
    assert found["test"]["local"]["gain"] == found["test"]["local"]["beyond"] == 0
    assert found["received"] == float(info.bytes_received.mean())
    assert found["graph"]["l1"] == pytest.approx(em.graph(state).score(em.clients.federation.truth).l1, abs=1e-4)


def test_a_model_with_local_training_beside_it_can_be_stacked():
    experiment = tiny(methods=(STACKED,), seeds=(0,), compact=True)
    cell = experiment.cell(COLUMN, STACKED, STACKED.candidates[0], 0)
    found = run_cell(cell)
    em, state, _ = by_hand(replace(COLUMN.settings, seed=0, deploy="stack"), "fedavg")
    assert found["test"].keys() == {"mixed", "trained", "local", "stack", "single"}
    assert found["test"]["stack"]["accuracy"] == pytest.approx(
        float(em.deploy(state).evaluate(em.clients).score.mean()), abs=1e-4
    )
    asked = dict(cell.request["settings"])
    assert len(asked.pop("else")) == 12, "a digest of the defaults"
    changed = ("rounds", "local_epochs", "warmup_epochs", "executor", "deploy")
    assert asked == {name: getattr(cell.settings, name) for name in changed}, "only what differs from them"


def test_a_model_without_local_training_beside_it_has_no_gain():
    local = Method("Local", "local", deployed="mixed")
    found = run_cell(tiny(methods=(local,), compact=True).cell(COLUMN, local, {}, 0))
    assert found["test"].keys() == {"mixed", "trained"}
    assert "gain" not in found["test"]["mixed"]


def test_only_honest_clients_count():
    column = COLUMN._replace(attack="label-flip", share=0.5)
    found = run_cell(tiny(columns=(column,), methods=(HEDGE,), seeds=(0,), compact=True).cell(column, HEDGE, {}, 0))
    settings = replace(COLUMN.settings, seed=0)
    federation = load_federation(COLUMN.federation, seed=0)
    clients = HostileClients(settings.clients(federation), "label-flip", share=0.5, seed=0)
    em = EM(settings.model("hedge", federation), clients, settings.schedule, seed=0)
    state, _ = em.step(em.init())
    state, _ = em.step(state)
    honest = clients.evaluate(state.beside["local"].params).score[clients.honest]
    assert found["test"]["local"]["accuracy"] == pytest.approx(float(honest.mean()), abs=1e-4)
    assert set(found["trust"]) == {"hostile", "honest"}


def test_an_experiment_of_compact_cells_is_filled_and_filled_no_more(tmp_path):
    experiment = tiny(methods=(HEDGE, STACKED), seeds=(0, 1), compact=True)
    store = Store(tmp_path / "s.json")
    results = reproduce(experiment, store, progress=False)
    before = (tmp_path / "s.json").read_bytes()
    reproduce(experiment, Store(tmp_path / "s.json"), progress=False)
    assert (tmp_path / "s.json").read_bytes() == before
    for measure in (
        "accuracy",
        "worst10",
        "beyond",
        "worst_gain",
        "single",
        "l1_first",
        "received",
        "seconds",
        "regret",
    ):
        values = results.values(COLUMN, HEDGE, measure)
        assert values is not None
        assert all(isinstance(value, float) for value in values), measure
    cells = [store.get(experiment.cell(COLUMN, HEDGE, {}, seed)) for seed in (0, 1)]
    assert results.values(COLUMN, HEDGE, "accuracy") == [cell["test"]["stack"]["accuracy"] for cell in cells]
    assert statistics.fmean(results.values(COLUMN, HEDGE, "regret")) >= 0
