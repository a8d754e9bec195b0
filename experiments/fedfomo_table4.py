"""FedFomo, Table 4: accuracy of clients who train by DP-SGD, against epsilon; beside it, with noised evidence.

Epsilon is of the client who has revealed most, the paper's a mean; it is of training alone but where losses are noised. Not
as in the paper at scale `paper`: the clusters are those of pixels; the norm to which gradients are clipped and the size of
batches are not printed (here 1, and 50 or, at `small`, 16); learning rates do not decay by 1 % a round.
"""

from dataclasses import replace

from scool_ppl.reproduce import PAPER_CNN, SMOKE, Column, Experiment, Method, Settings, as_printed, at_scale

RATES = tuple({"--learning-rate": rate} for rate in (0.3, 1.0))
NOISES = (0.0, 1.0, 2.0)
METHODS = (
    Method("Local Training", "local", RATES),
    Method("FedAvg", "fedavg", RATES, deployed="mixed"),
    Method("FedFomo", "fedfomo", RATES),
    Method("SCooL-SBM", "scool_sbm", RATES),
    # Its losses image by image cannot be noised.
    Method("Hedge, the default", "hedge", RATES, "deployed", only=tuple(f"noise {noise:g}" for noise in NOISES)),
)
PAPER = {
    "FedAvg": (("19.37 ± 1.42", "-"), ("17.60 ± 1.64", "10.26 ± 0.21"), ("16.19 ± 1.62", "3.57 ± 0.08")),
    "FedFomo": (("71.56 ± 1.20", "-"), ("71.28 ± 1.06", "6.89 ± 0.13"), ("65.97 ± 0.95", "1.70 ± 0.04")),
}
"""CIFAR-10: accuracy and epsilon at noise 0, 1 and 2."""


def experiment(scale: str) -> Experiment:
    federation, settings = at_scale(
        scale,
        smoke=("latent:digits:clients=10,groups=2,train=30", SMOKE),
        small=(
            "latent:mnist:clients=15,groups=5,train=100,test=1000",
            Settings(network="mlp", executor="stacked", rounds=5, warmup_epochs=3, local_epochs=1, batch_size=16),
        ),
        paper=(
            "latent:cifar10:clients=15,groups=5,train=none",
            replace(PAPER_CNN, rounds=20, weight_decay=1e-4, batch_size=50),
        ),
    )
    private = replace(settings, dp_noise=1.0, dp_clip=1.0, dp_delta=at_scale(scale, smoke=1e-3, small=1e-3, paper=1e-5))
    columns = [Column(f"noise {noise:g}", federation, replace(private, dp_noise=noise)) for noise in NOISES]
    noised = replace(private, dp_evidence_noise=4.0, dp_evidence_clip=3.0)
    return Experiment(
        title="FedFomo, Table 4: accuracy and epsilon of private clients",
        columns=(*columns, Column("noise 1, 4 of evidence", federation, noised)),
        methods=at_scale(scale, smoke=as_printed(METHODS, {}, rates=(1.0,)), small=METHODS, paper=METHODS),
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2)),
        measures=("accuracy", "epsilon"),
        paper={
            method: {
                f"{column.label}, {measure}": text
                for column, texts in zip(columns, printed, strict=True)
                for measure, text in zip(("accuracy, %", "epsilon"), texts, strict=True)
                if text != "-"
            }
            for method, printed in PAPER.items()
        },
    )
