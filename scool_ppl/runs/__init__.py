"""Runs: a run's folder, what is saved in it, and how it goes on."""

from scool_ppl.runs import loggers
from scool_ppl.runs.checkpoints import Checkpoint
from scool_ppl.runs.folder import Run, free_name
from scool_ppl.runs.rows import client_rows, history_row

__all__ = ["Checkpoint", "Run", "client_rows", "free_name", "history_row", "loggers"]
