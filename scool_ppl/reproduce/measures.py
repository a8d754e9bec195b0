"""The numbers that tables are made of: how they are called and printed."""

from __future__ import annotations

from typing import NamedTuple


class Measure(NamedTuple):
    """A number of a table: how it is called and by what it is multiplied and rounded to be printed."""

    title: str
    scale: float = 100.0
    digits: int = 1
    signed: bool = False


MEASURES: dict[str, Measure] = {
    "accuracy": Measure("accuracy, %"),
    "std": Measure("std over clients, %"),
    "worst10": Measure("worst 10 %, %"),
    "worst20": Measure("worst 20 %, %"),
    "gain": Measure("gain over local, %", signed=True),
    "below": Measure("clients below local, %", digits=0),
    "beyond": Measure("harmed beyond noise, %"),
    "worst_gain": Measure("worst client's gain, %", signed=True),
    "regret": Measure("regret, %", digits=2, signed=True),
    "l1_first": Measure("graph L1 after the first round", 1.0, 2),
    "improved": Measure("clients improved, %", digits=0),
    "task": Measure("on own classes, %"),
    "mixed": Measure("after mixing, %"),
    "trained": Measure("after local training, %"),
    "stack": Measure("stacked, %"),
    "single": Measure("one network, %"),
    "loss": Measure("loss", 1.0, 3),
    "perplexity": Measure("perplexity", 1.0, 2),
    "r2": Measure("R2", 1.0, 3),
    "l1": Measure("graph L1", 1.0, 2),
    "auc": Measure("edges AUC", 1.0, 2),
    "ari": Measure("blocks ARI", 1.0, 2),
    "trust": Measure("weight of the hostile / of the honest", 1.0, 2),
    "epsilon": Measure("epsilon", 1.0, 1),
    "received": Measure("MB received a round", 1e-6, 2),
    "seconds": Measure("seconds", 1.0, 0),
}
