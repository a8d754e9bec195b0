"""Workbench: fit one model, or compare several on the same clients, with the same settings."""

from scool_ppl.workbench.compare import Outcome, compare
from scool_ppl.workbench.predict import Predictions, predict
from scool_ppl.workbench.resume import Opened, open_run, resume
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.tables import comparison, comparison_table, fit_table
from scool_ppl.workbench.workbench import Result, Workbench

__all__ = [
    "Opened",
    "Outcome",
    "Predictions",
    "Result",
    "Settings",
    "Workbench",
    "compare",
    "comparison",
    "comparison_table",
    "fit_table",
    "open_run",
    "predict",
    "resume",
]
