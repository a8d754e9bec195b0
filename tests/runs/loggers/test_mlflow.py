"""MLflow's own client finds the rounds of a run once each, its settings, pictures, and how it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scool_ppl.errors import InputError
from scool_ppl.runs.loggers import MLflow
from scool_ppl.runs.loggers.base import scalars
from tests.helpers.logged import STOPS, went_on
from tests.helpers.runs import StoppedHereError, driver, stop_after

mlflow = pytest.importorskip("mlflow")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder as the store: a database takes seconds to make."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return f"file://{tmp_path}/store"


def runs(store: str, experiment: str = "scool_ppl") -> tuple[Any, list[Any]]:
    client = mlflow.MlflowClient(store)
    return client, client.search_runs([client.get_experiment_by_name(experiment).experiment_id])


@pytest.mark.parametrize("stop", STOPS)
def test_a_run_that_goes_on_is_logged_once(stop: str, store: str, tmp_path: Path) -> None:
    history = went_on(lambda: MLflow("it's mine", {"blocks": 3}, tracking_uri=store), tmp_path / "run", stop)
    client, (found,) = runs(store)
    assert found.info.status == "FINISHED"
    assert found.data.params["blocks"] == "3"
    assert found.data.params["prior"].startswith("Ring")
    for name in ("loss", "accuracy/mean", "bytes/received"):
        logged = [(entry.step, entry.value) for entry in client.get_metric_history(found.info.run_id, name)]
        assert logged == [(row["round"], scalars(row)[name]) for row in history]
    pictures = [Path(entry.path).name for entry in client.list_artifacts(found.info.run_id, "graphs")]
    assert pictures == [f"graph-round-{round:06d}.png" for round in (1, 2, 5)]


def test_a_stopped_run_is_marked_and_a_new_one_is_another(store: str) -> None:
    with pytest.raises(StoppedHereError):
        driver().fit(2, progress=False, callbacks=[MLflow("mine", tracking_uri=store, experiment="e"), stop_after(1)])
    driver().fit(1, progress=False, callbacks=[MLflow("mine", tracking_uri=store, experiment="e")])
    assert sorted(run.info.status for run in runs(store, "e")[1]) == ["FAILED", "FINISHED"]


def test_a_store_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="set MLFLOW_TRACKING_URI"):
        MLflow("mine", tracking_uri=f"nonsense://{tmp_path}")
