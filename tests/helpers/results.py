"""Results of fits that need not be run: summaries with numbers that can be told apart."""

from __future__ import annotations

from typing import Any

from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.workbench import Result

SPEC = "permuted:digits:clients=4,groups=2,train=30,test=20,order=listed"
BRIEF = Settings(rounds=2, warmup_epochs=30, local_epochs=1, executor="stacked")


def summary(accuracy: float | None = 0.8, **fields: Any) -> dict[str, Any]:
    """What a fit comes to."""
    spread = {"mean": accuracy, "std": 0.05, "worst10": accuracy}
    return {
        "model": "mine",
        "federation": SPEC,
        "accuracy": spread,
        "accuracy_trained": {"mean": 0.7, "std": 0.1, "worst10": 0.5},
        "task_accuracy": spread,
        "graph": {"l1": 0.5, "auc": None, "ari": 1.0},
        "elbo": -12.25,
        "bytes": {"received": 2.5e6, "sent": 0.0},
        "seconds": {"train": 100.0, "look": 100.0, "infer": 100.0, "mix": 100.0},
        "total_seconds": {"train": 1.0, "look": 2.0, "infer": 0.5, "mix": 0.25},
        **fields,
    }


def result(name: str = "mine", **fields: Any) -> Result:
    """A result of which only the summary is read."""
    return Result(name, None, summary(**fields), None)  # type: ignore[arg-type]
