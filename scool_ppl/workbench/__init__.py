"""Workbench: fit one model, compare several, choose by the bound, draw from the posterior, with the same settings."""

from scool_ppl.workbench.choose import Choices, choose
from scool_ppl.workbench.compare import Arm, Outcome, compare
from scool_ppl.workbench.posterior import GraphPosterior, posterior_of, sample_posterior
from scool_ppl.workbench.predict import Predictions, predict
from scool_ppl.workbench.resume import Opened, open_run, resume
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.tables import comparison, comparison_table, fit_table, posterior_table
from scool_ppl.workbench.transfer import transfer
from scool_ppl.workbench.workbench import Result, Workbench

__all__ = [
    "Arm",
    "Choices",
    "GraphPosterior",
    "Opened",
    "Outcome",
    "Predictions",
    "Result",
    "Settings",
    "Workbench",
    "choose",
    "compare",
    "comparison",
    "comparison_table",
    "fit_table",
    "open_run",
    "posterior_of",
    "posterior_table",
    "predict",
    "resume",
    "sample_posterior",
    "transfer",
]
