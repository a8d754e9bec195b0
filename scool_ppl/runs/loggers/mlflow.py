"""MLflow: a fit as a run of an experiment."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scool_ppl.errors import InputError
from scool_ppl.runs.loggers.base import Logger, Scalars


class MLflow(Logger):
    """A run of an MLflow experiment, at MLFLOW_TRACKING_URI or `tracking_uri`; `run` names it, and finds it again."""

    package = "mlflow"
    takes_pictures = True

    def __init__(
        self,
        run: str | os.PathLike[str],
        settings: Mapping[str, Any] | None = None,
        *,
        experiment: str = "scool_ppl",
        tracking_uri: str | None = None,
    ) -> None:
        super().__init__(settings)
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        self.run, self.experiment = os.fspath(run), experiment
        try:
            self._client = MlflowClient(tracking_uri)
            self._client.search_experiments(max_results=1)
        except (MlflowException, ImportError, OSError) as error:
            raise InputError(
                f"MLflow cannot be used: {' '.join(str(error).split())}; set MLFLOW_TRACKING_URI to a store that can"
            ) from error

    @classmethod
    def of_run(cls, folder: Path, settings: Mapping[str, Any]) -> MLflow:
        return cls(folder.resolve(), settings)

    def errors(self) -> tuple[type[Exception], ...]:
        from mlflow.exceptions import MlflowException

        return (OSError, MlflowException)

    def open(self, settings: Mapping[str, str], *, goes_on: bool) -> int:
        known = self._client.get_experiment_by_name(self.experiment)
        place = known.experiment_id if known else self._client.create_experiment(self.experiment)
        key = hashlib.sha256(self.run.encode()).hexdigest()  # a path may have quotes, which a search cannot have
        found = self._client.search_runs([place], f"tags.scool_ppl_run = '{key}'", max_results=1) if goes_on else []
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return max((entry.step for entry in self._client.get_metric_history(self._id, "elapsed_rounds")), default=0)
        tags = {"scool_ppl_run": key, "folder": self.run}
        self._id = self._client.create_run(place, tags=tags, run_name=Path(self.run).name).info.run_id
        for name, value in settings.items():
            self._client.log_param(self._id, _key(name), value[:500])
        return 0

    def write(self, round: int, values: Scalars) -> None:
        from mlflow.entities import Metric

        when = int(1000 * time.time())
        # The last of a batch tells that the whole row is there.
        metrics = [
            Metric(_key(name), value, when, round) for name, value in {**values, "elapsed_rounds": round}.items()
        ]
        self._client.log_batch(self._id, metrics)

    def picture(self, round: int, png: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"graph-round-{round:06d}.png"
            path.write_bytes(png)
            self._client.log_artifact(self._id, str(path), "graphs")

    def close(self, error: BaseException | None) -> None:
        stopped = "FAILED" if isinstance(error, Exception) else "KILLED"
        self._client.set_terminated(self._id, "FINISHED" if error is None else stopped)


def _key(name: str) -> str:
    """A name with the letters that MLflow takes."""
    return re.sub(r"[^\w\-./ ]", "-", name)
