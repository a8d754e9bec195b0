"""Noised evidence: accuracy and recovered graphs of private clients when the losses that they hand out are noised, too.

The same block model with one block ("no blocks") has the same evidence and no prior that connects edges. Losses that are
clipped and not noised tell what the clip does from what the noise does. Methods that look at no evidence are the same
however evidence is noised: they are run at the noise of training that all share, and at a lower one, where their epsilon is
that of SCooL-SBM at noise 2 of evidence. Epsilon is that of the client who has revealed most: of training, and with noised
evidence of both. Rate and clip are the same for all: chosen of rates .5, 1 and 3 and clips .3 and 1 by validation accuracy
under seed 100, of training alone and of the oracle.
"""

from dataclasses import replace
from statistics import fmean
from typing import Any

from scool_ppl.reproduce import SMALL_MLP, SMOKE, Column, Experiment, Method, Results, at_scale, figures

PLAIN, EXACT, CLIPPED = "no noise", "noise 2, evidence as it is", "noise 2, evidence clipped"
NOISED = {f"noise 2, {noise:g} of evidence": noise for noise in (2.0, 3.0, 4.0)}
LESS = "noise 1.6, no evidence"
SILENT, ASKING = (PLAIN, EXACT, LESS), (PLAIN, EXACT, CLIPPED, *NOISED)
METHODS = (
    Method("Local", "local", deployed="mixed", only=SILENT),
    Method("FedAvg", "fedavg", deployed="mixed", only=SILENT),
    Method("FedFomo", "fedfomo", deployed="mixed", only=ASKING),
    Method("SCooL-SBM", "scool_sbm", deployed="mixed", only=ASKING),
    Method("SCooL, no blocks", "scool_sbm", ({"blocks": 1},), deployed="mixed", only=ASKING),
    Method("Oracle", "oracle", deployed="mixed", only=SILENT),
)


def experiment(scale: str) -> Experiment:
    federation, settings = at_scale(
        scale,
        smoke=("permuted:digits:clients=6,groups=2,train=30", replace(SMOKE, learning_rate=1.0)),
        small=(
            "permuted:digits:clients=12,groups=3,train=100",
            replace(SMALL_MLP, rounds=6, warmup_epochs=6, local_epochs=2, batch_size=32, learning_rate=1.0),
        ),
        paper=(
            "permuted:mnist:clients=100,groups=5,train=500",
            replace(SMALL_MLP, rounds=20, warmup_epochs=10, local_epochs=2, batch_size=50, learning_rate=1.0),
        ),
    )
    private = replace(settings, dp_noise=2.0, dp_clip=1.0, dp_delta=1e-3, dp_evidence_clip=None)
    noised = replace(private, dp_evidence_noise=0.0, dp_evidence_clip=3.0)
    return Experiment(
        title="Private clients whose evidence is noised",
        columns=(
            Column(PLAIN, federation, replace(private, dp_noise=0.0)),
            Column(EXACT, federation, private),
            Column(CLIPPED, federation, noised),
            *(Column(label, federation, replace(noised, dp_evidence_noise=noise)) for label, noise in NOISED.items()),
            Column(LESS, federation, replace(private, dp_noise=1.6)),
        ),
        methods=METHODS,
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2)),
        measures=("accuracy", "l1", "auc", "ari", "epsilon"),
        transposed=True,
        figures=_drawn,
    )


def _drawn(results: Results) -> dict[str, Any]:
    """Over the noise of evidence, with the same noise of training; and over epsilon."""
    measures = ("accuracy", "l1", "auc", "ari")
    return {
        "noise": figures.over_columns(results, measures, columns=results.experiment.columns[:-1]),
        "epsilon": figures.over_columns(results, measures, place=_spent, xlabel="epsilon"),
    }


def _spent(results: Results, column: Column, method: Method) -> float | None:
    """Epsilon of all that was revealed; None where it has no bound."""
    bounded = column.label in NOISED or (column.label != PLAIN and method.only == SILENT)
    found = results.values(column, method, "epsilon") if bounded else None
    return None if found is None else fmean(found)
