"""L2C, Table 2: accuracy of 100 personalised models on non-IID tasks.

Not as in the paper at scale `paper`: MiniImageNet and CGA are left out; FedAvg and Ditto average all clients, not a tenth,
and for 100 rounds, FedAvg in the paper for more than 1000 epochs; D-PSGD has one topology, a ring.
"""

from scool_ppl.reproduce import (
    PAPER_CNN,
    SMALL_CNN,
    SMOKE,
    Column,
    Experiment,
    Method,
    as_printed,
    at_scale,
)

METHODS = (
    Method("Local SGD only", "local"),
    Method("DPSGD(s=1 step)", "dpsgd", ({"mix": "before"},)),
    Method("DPSGD(s=5 epochs)", "dpsgd"),
    Method("FedAvg", "fedavg", deployed="mixed"),
    Method("FOMO", "fedfomo"),
    Method("Ditto", "ditto"),
    Method("L2C", "l2c"),
    Method("meta-L2C", "meta_l2c"),
    Method("SCooL-SBM", "scool_sbm"),
    Method("Hedge, the default", "hedge", deployed="deployed"),
)
PRINTED: dict[str, dict[str, int | float]] = {
    **{label: {"neighbours": 10} for label in ("DPSGD(s=1 step)", "DPSGD(s=5 epochs)")},
    "FOMO": {"count": 10},
    **{label: {"keep": 10} for label in ("L2C", "meta-L2C", "SCooL-SBM")},
}
"""Everybody learns from a tenth; L2C drops the others after ten rounds."""
PAPER = {
    "Local SGD only": ("87.50 ± 1.37", "55.47 ± 2.08"),
    "DPSGD(s=1 step)": ("83.01 ± 1.31", "40.56 ± 1.24"),
    "DPSGD(s=5 epochs)": ("75.89 ± 1.44", "35.03 ± 1.39"),
    "FedAvg": ("70.65 ± 3.88", "40.15 ± 4.01"),
    "FOMO": ("88.72 ± 0.29", "52.44 ± 0.70"),
    "Ditto": ("87.32 ± 0.69", "54.28 ± 0.57"),
    "L2C": ("90.14 ± 0.34", "59.00 ± 0.42"),
    "meta-L2C": ("92.10 ± 0.72", "58.28 ± 1.26"),
}


def experiment(scale: str) -> Experiment:
    datasets, size, settings = at_scale(
        scale,
        smoke=(["digits"], "clients=10,train=30", SMOKE),
        small=(["cifar10"], "clients=20,train=100,test=1000", SMALL_CNN),
        paper=(["cifar10", "cifar100"], "clients=100", PAPER_CNN),
    )
    columns = tuple(
        Column(dataset, f"pathological:{dataset}:{size},classes={10 if dataset == 'cifar100' else 2}", settings)
        for dataset in datasets
    )
    return Experiment(
        title="L2C, Table 2: accuracy of personalised models on non-IID tasks",
        columns=columns,
        methods=at_scale(
            scale, smoke=METHODS, small=METHODS, paper=as_printed(METHODS, PRINTED, rates=(0.01, 0.05, 0.1))
        ),
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        paper={label: dict(zip(datasets, texts, strict=False)) for label, texts in PAPER.items()},
    )
