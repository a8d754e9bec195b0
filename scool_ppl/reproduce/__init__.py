"""Experiments: grids of federations, methods and seeds, their result stores, tables and figures."""

from scool_ppl.reproduce import figures
from scool_ppl.reproduce.catalogue import experiment_names, experiment_title, load_experiment
from scool_ppl.reproduce.experiment import SCALES, Cell, Column, Experiment, Method, at_scale
from scool_ppl.reproduce.grid import reproduce
from scool_ppl.reproduce.results import Results
from scool_ppl.reproduce.scales import (
    MEDIUM_CNN,
    PAPER_CNN,
    PAPER_FEDERICO,
    PAPER_RESNET,
    SMALL_CNN,
    SMALL_MLP,
    SMOKE,
    as_printed,
)
from scool_ppl.runs.store import Store
from scool_ppl.workbench.settings import Settings

__all__ = [
    "MEDIUM_CNN",
    "PAPER_CNN",
    "PAPER_FEDERICO",
    "PAPER_RESNET",
    "SCALES",
    "SMALL_CNN",
    "SMALL_MLP",
    "SMOKE",
    "Cell",
    "Column",
    "Experiment",
    "Method",
    "Results",
    "Settings",
    "Store",
    "as_printed",
    "at_scale",
    "experiment_names",
    "experiment_title",
    "figures",
    "load_experiment",
    "reproduce",
]
