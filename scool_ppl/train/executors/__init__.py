"""Executors: how K clients are run, all at once as stacked tensors or one by one; the results are the same."""

from scool_ppl.train.executors.executor import Executor
from scool_ppl.train.executors.loop import Loop
from scool_ppl.train.executors.stacked import Stacked

__all__ = ["Executor", "Loop", "Stacked"]
