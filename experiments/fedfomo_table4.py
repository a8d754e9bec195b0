"""FedFomo, Table 4: accuracy of clients who train by DP-SGD, against epsilon; beside it, with noised evidence.

Epsilon is of the client who has revealed most, the paper's a mean; it is of training alone but where losses are noised. Not
as in the paper at scale `paper`: the clusters are those of pixels; the norm to which gradients are clipped and the size of
batches are not printed (here 1, and 50 or, at `small`, 16); learning rates do not decay by 1 % a round.
"""

from dataclasses import replace

from scool_ppl.reproduce import PAPER_CNN, SMOKE, Column, Experiment, Method, Settings, as_printed, at_scale

RATES = tuple({"--learning-rate": rate} for rate in (0.3, 1.0))
DATASETS = ("", "CIFAR-100, ")
NOISES = (0.0, 1.0, 2.0)
METHODS = (
    Method("Local Training", "local", RATES),
    Method("FedAvg", "fedavg", RATES, deployed="mixed"),
    Method("FedFomo", "fedfomo", RATES),
    Method("SCooL-SBM", "scool_sbm", RATES),
)
HEDGE = Method("Hedge, the default", "hedge", RATES, deployed="deployed")
PAPER = {
    "FedAvg": "19.37 ± 1.42, -, 17.60 ± 1.64, 10.26 ± 0.21, 16.19 ± 1.62, 3.57 ± 0.08, "
    "5.09 ± 0.38, -, 5.05 ± 0.31, 8.20 ± 0.69, 4.33 ± 0.27, 2.33 ± 0.21",
    "FedFomo": "71.56 ± 1.20, -, 71.28 ± 1.06, 6.89 ± 0.13, 65.97 ± 0.95, 1.70 ± 0.04, "
    "26.76 ± 1.20, -, 26.14 ± 1.05, 8.20 ± 0.69, 15.95 ± 0.94, 1.71 ± 0.15",
}
"""On CIFAR-10 and CIFAR-100, accuracy and epsilon at noise 0, 1 and 2."""


def experiment(scale: str) -> Experiment:
    federations, settings = at_scale(
        scale,
        smoke=(["latent:digits:clients=10,groups=2,train=30"], SMOKE),
        small=(
            ["latent:mnist:clients=15,groups=5,train=100,test=1000"],
            Settings(network="mlp", executor="stacked", rounds=5, warmup_epochs=3, local_epochs=1, batch_size=16),
        ),
        paper=(
            [f"latent:{dataset}:clients=15,groups=5,train=none" for dataset in ("cifar10", "cifar100")],
            replace(PAPER_CNN, rounds=20, weight_decay=1e-4, batch_size=50),
        ),
    )
    private = replace(settings, dp_noise=1.0, dp_clip=1.0, dp_delta=at_scale(scale, smoke=1e-3, small=1e-3, paper=1e-5))
    columns = [
        Column(f"{label}noise {noise:g}", federation, replace(private, dp_noise=noise))
        for label, federation in zip(DATASETS, federations, strict=False)
        for noise in at_scale(scale, smoke=NOISES[1:2], small=NOISES, paper=NOISES)
    ]
    # The default's losses image by image cannot be noised.
    methods = (*METHODS, HEDGE._replace(only=tuple(column.label for column in columns)))
    noised = replace(private, dp_evidence_noise=4.0, dp_evidence_clip=3.0)
    heads = [f"{column.label}, {measure}" for column in columns for measure in ("accuracy, %", "epsilon")]
    return Experiment(
        title="FedFomo, Table 4: accuracy and epsilon of private clients",
        columns=(*columns, Column("noise 1, 4 of evidence", federations[0], noised)),
        methods=at_scale(scale, smoke=as_printed(methods, {}, rates=(1.0,)), small=methods, paper=methods),
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2)),
        measures=("accuracy", "epsilon"),
        paper={
            method: {head: text for head, text in zip(heads, texts.split(", "), strict=False) if text != "-"}
            for method, texts in PAPER.items()
        },
    )
