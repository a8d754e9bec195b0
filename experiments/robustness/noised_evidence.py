"""Noised evidence: accuracy and recovered graphs of private clients when the losses that they hand out are noised, too.

The same block model with one block ("no blocks") has the same evidence and no prior that connects edges. Methods that look
at no evidence are run once. Epsilon is that of the client who has revealed most: of training, and with noised evidence of
both. Rate and clip are the same for all: chosen of rates .5, 1 and 3 and clips .3 and 1 by validation accuracy under seed
100, of training alone and of the oracle.
"""

from dataclasses import replace

from scool_ppl.reproduce import SMALL_MLP, SMOKE, Column, Experiment, Method, at_scale, figures

PLAIN, EXACT = "no noise", "noise 2, evidence as it is"
NOISES = (2.0, 4.0)
METHODS = (
    Method("Local", "local", deployed="mixed", only=(PLAIN, EXACT)),
    Method("FedAvg", "fedavg", deployed="mixed", only=(PLAIN, EXACT)),
    Method("FedFomo", "fedfomo", deployed="mixed"),
    Method("SCooL-SBM", "scool_sbm", deployed="mixed"),
    Method("SCooL, no blocks", "scool_sbm", ({"blocks": 1},), deployed="mixed"),
    Method("Oracle", "oracle", deployed="mixed", only=(PLAIN, EXACT)),
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
    noised = [
        Column(
            f"noise 2, {noise:g} of evidence",
            federation,
            replace(private, dp_evidence_noise=noise, dp_evidence_clip=3.0),
        )
        for noise in NOISES
    ]
    return Experiment(
        title="Private clients whose evidence is noised",
        columns=(
            Column(PLAIN, federation, replace(private, dp_noise=0.0)),
            Column(EXACT, federation, private),
            *noised,
        ),
        methods=METHODS,
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2)),
        measures=("accuracy", "auc", "ari", "epsilon"),
        transposed=True,
        figures=lambda results: {"noise": figures.over_columns(results, ("accuracy", "auc"))},
    )
