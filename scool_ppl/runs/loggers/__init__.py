"""Loggers: the rounds of a fit, its settings and its graphs in the trackers that people know."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scool_ppl.errors import unknown
from scool_ppl.runs.loggers.base import Logger
from scool_ppl.runs.loggers.csv import CSV
from scool_ppl.runs.loggers.mlflow import MLflow
from scool_ppl.runs.loggers.tensorboard import TensorBoard
from scool_ppl.runs.loggers.wandb import WandB

__all__ = ["CSV", "LOGGERS", "Logger", "MLflow", "TensorBoard", "WandB", "loggers_of"]

LOGGERS: dict[str, type[Logger]] = {"tensorboard": TensorBoard, "csv": CSV, "mlflow": MLflow, "wandb": WandB}
"""By the names that `scool fit --log` takes."""


def loggers_of(names: Sequence[str], folder: Path, settings: Mapping[str, Any]) -> list[Logger]:
    """The loggers of a run by name; refuses what is not known or not installed."""
    for name in names:
        if name not in LOGGERS:
            raise unknown("logger", name, LOGGERS)
    return [LOGGERS[name].of_run(folder, settings) for name in dict.fromkeys(names)]
