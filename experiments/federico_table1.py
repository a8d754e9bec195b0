"""FedeRiCo, Table 1: accuracy with 2, 3 and 4 data distributions of disjoint classes.

Not as in the paper at scale `paper`: SGD, whose rate is chosen for some, for Adam at 0.01; the two-layer CNN for a CNN of
three layers and a ResNet-18, an MLP of 64 units for one of 1000 and 200; held-out images of the dataset for a fifth of a
client's own; FedFomo with one local epoch on CIFAR-100 for five; how many components FedEM has is chosen, in the paper 4;
15 seeds everywhere, in the paper 15, 3 and 3.
"""

from dataclasses import replace

from scool_ppl.reproduce import PAPER_FEDERICO, SMALL_CNN, SMOKE, Column, Experiment, Method, as_printed, at_scale

RATES = ({"--learning-rate": 0.02}, {"--learning-rate": 0.05}, {"--learning-rate": 0.1})
METHODS = (
    Method("FedAvg", "fedavg", RATES, deployed="mixed"),
    Method("FedAvg+", "fedavg", RATES, deployed="trained"),
    Method("Local Training", "local", RATES),
    Method("Clustered FL", "cfl", ({}, {"eps1": 0.4}, {"eps2": 1.6})),
    Method("FedEM", "fedem", ({"components": 4}, {"components": 3}, {"components": 2})),
    Method("FedFomo", "fedfomo", ({}, {"count": 3}, {"fallback": "trained"})),
    Method("FedeRiCo", "federico", ({}, {"n_eff": 5.0}, {"n_eff": 20.0})),
    Method("SCooL-SBM", "scool_sbm", ({}, {"n_eff": 2.0}, {"reference": "marginal"})),
    Method("Hedge, the default", "hedge", RATES, deployed="deployed"),
)
PAPER = {
    "FedAvg": "11.44 ± 3.28, 11.73 ± 3.68, 13.93 ± 5.74, 21.28 ± 5.04, 17.41 ± 3.27, 18.36 ± 3.68, "
    "66.58 ± 1.88, 53.36 ± 4.21, 51.25 ± 4.37",
    "FedAvg+": "12.45 ± 8.46, 29.86 ± 17.85, 45.65 ± 21.61, 29.95 ± 1.07, 35.33 ± 1.77, 36.17 ± 3.27, "
    "80.21 ± 0.68, 81.88 ± 0.91, 84.50 ± 1.37",
    "Local Training": "40.09 ± 2.84, 55.27 ± 3.11, 69.03 ± 7.05, 16.60 ± 0.64, 25.99 ± 2.38, 31.05 ± 1.68, "
    "76.76 ± 0.23, 83.30 ± 0.32, 88.05 ± 0.44",
    "Clustered FL": "11.50 ± 3.65, 15.24 ± 5.79, 16.43 ± 5.17, 20.93 ± 3.57, 23.15 ± 7.04, 15.15 ± 0.60, "
    "66.58 ± 1.88, 53.36 ± 4.21, 51.25 ± 4.37",
    "FedEM": "41.21 ± 10.83, 55.08 ± 6.71, 63.61 ± 9.93, 26.25 ± 2.40, 24.11 ± 7.36, 19.23 ± 2.58, "
    "22.59 ± 1.95, 28.72 ± 1.83, 22.46 ± 3.99",
    "FedFomo": "42.24 ± 8.32, 59.45 ± 5.57, 71.05 ± 6.09, 12.15 ± 0.57, 20.49 ± 2.90, 24.53 ± 2.77, "
    "78.61 ± 0.78, 82.57 ± 0.24, 87.86 ± 0.77",
    "FedeRiCo": "56.61 ± 2.51, 69.76 ± 2.25, 78.22 ± 4.80, 30.95 ± 1.62, 39.19 ± 1.64, 41.41 ± 1.07, "
    "83.56 ± 0.49, 90.28 ± 0.75, 93.76 ± 0.12",
}
"""On CIFAR-10, CIFAR-100 and Office-Home, each with 2, 3 and 4 distributions."""

OFFICE_HOME = "features:office-home.npz"
"""The features of ResNet-18's penultimate layer for the images of all domains, which the user has to make."""


def experiment(scale: str) -> Experiment:
    datasets = at_scale(
        scale,
        smoke={"": ("digits", 10, 8, "train=40", SMOKE)},
        small={"": ("cifar10", 10, 8, "train=200,test=1000", SMALL_CNN)},
        paper={
            "": ("cifar10", 10, 8, "train=625", PAPER_FEDERICO),
            "CIFAR-100, ": ("cifar100", 100, 8, "train=937", PAPER_FEDERICO),
            "Office-Home, ": (OFFICE_HOME, 65, 10, "train=none", replace(PAPER_FEDERICO, rounds=400, batch_size=100)),
        },
    )
    columns = [
        Column(
            f"{label}{groups} distributions",
            f"groups:{dataset}:clients={clients},groups={groups},classes={total // groups},{size}",
            settings,
        )
        for label, (dataset, total, clients, size, settings) in datasets.items()
        for groups in at_scale(scale, smoke=(2, 4), small=(2, 3, 4), paper=(2, 3, 4))
    ]
    return Experiment(
        title="FedeRiCo, Table 1: accuracy with 2, 3 and 4 distributions",
        columns=tuple(columns),
        methods=at_scale(scale, smoke=as_printed(METHODS, {}), small=METHODS, paper=METHODS),
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=tuple(range(15))),
        paper={
            row: {column.label: text for column, text in zip(columns, texts.split(", "), strict=False)}
            for row, texts in PAPER.items()
        },
    )
