"""FedeRiCo, Table 1: accuracy with 2, 3 and 4 data distributions of disjoint classes."""

from scool_ppl.reproduce import Column, Experiment, Method, at_scale
from scool_ppl.reproduce.scales import SMALL_CNN, SMOKE
from scool_ppl.workflow import Settings

RATES = ({"--learning-rate": 0.02}, {"--learning-rate": 0.05}, {"--learning-rate": 0.1})
METHODS = (
    Method("FedAvg", "fedavg", RATES, deployed="mixed"),
    Method("FedAvg+", "fedavg", RATES, deployed="trained"),
    Method("Local Training", "local", RATES),
    Method("FedFomo", "fedfomo", ({}, {"count": 3}, {"fallback": "trained"})),
    Method("FedeRiCo", "federico", ({}, {"n_eff": 5.0}, {"n_eff": 20.0})),
    Method("SCooL-SBM", "scool_sbm", ({}, {"n_eff": 2.0}, {"reference": "marginal"})),
)
PAPER = {
    "FedAvg": ("11.44 ± 3.28", "11.73 ± 3.68", "13.93 ± 5.74"),
    "FedAvg+": ("12.45 ± 8.46", "29.86 ± 17.85", "45.65 ± 21.61"),
    "Local Training": ("40.09 ± 2.84", "55.27 ± 3.11", "69.03 ± 7.05"),
    "FedFomo": ("42.24 ± 8.32", "59.45 ± 5.57", "71.05 ± 6.09"),
    "FedeRiCo": ("56.61 ± 2.51", "69.76 ± 2.25", "78.22 ± 4.80"),
}
"""On CIFAR-10."""


def experiment(scale: str) -> Experiment:
    dataset, size, settings = at_scale(
        scale,
        smoke=("digits", "train=40", SMOKE),
        small=("cifar10", "train=200,test=1000", SMALL_CNN),
        paper=("cifar10", "train=625", Settings(rounds=150, local_epochs=1, warmup_epochs=1, batch_size=50)),
    )
    labels = [f"{number} distributions" for number in (2, 3, 4)]
    columns = tuple(
        Column(label, f"groups:{dataset}:clients=8,groups={groups},classes={classes},{size}", settings)
        for label, (groups, classes) in zip(labels, ((2, 5), (3, 3), (4, 2)), strict=True)
    )
    return Experiment(
        title="FedeRiCo, Table 1: accuracy with 2, 3 and 4 distributions",
        columns=columns,
        methods=METHODS,
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=tuple(range(15))),
        paper={row: dict(zip(labels, texts, strict=True)) for row, texts in PAPER.items()},
    )
