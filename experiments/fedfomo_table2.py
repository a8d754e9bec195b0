"""FedFomo, Tables 2 and 5: accuracy with 15 clients in 2 to 10 latent distributions.

Not as in the paper at scale `paper`: the clusters are those of pixels; give features of a network as the dataset for
the paper's; learning rates do not decay by 1 % a round; batches of 10, as their size is not printed; pFedMe takes one
step of the common network a round; MOCHA and Per-FedAvg are left out (models/README.md says why).
"""

from dataclasses import replace

from scool_ppl.reproduce import PAPER_CNN, SMALL_CNN, SMOKE, Column, Experiment, Method, at_scale

METHODS = (
    Method("Local Training", "local"),
    Method("FedAvg", "fedavg", deployed="mixed"),
    Method("FedAvg + Data", "fedavg", ({":common": 0.05},), deployed="mixed"),
    Method("FedProx", "fedprox", deployed="mixed"),
    Method("LG-FedAvg", "fedavg", ({"--private": "body"},)),
    Method("CFL", "cfl"),
    Method("pFedMe (R=1)", "fedprox", deployed="trained"),
    Method("FedFomo (n=5)", "fedfomo", ({"count": 5},)),
    Method("FedFomo (n=10)", "fedfomo", ({"count": 10},)),
    Method("SCooL-SBM", "scool_sbm"),
    Method("Hedge, the default", "hedge", deployed="deployed"),
)
NUMBERS = (2, 3, 4, 5, 10)
PAPER = {
    "Local Training": "60.03 ± 9.22, 66.61 ± 9.90, 69.12 ± 12.07, 76.52 ± 11.46, 92.64 ± 7.32, "
    "23.36 ± 0.33, 23.89 ± 2.03, 28.44 ± 1.97, 23.11 ± 9.44, 41.26 ± 1.31",
    "FedAvg": "38.92 ± 11.88, 21.56 ± 9.14, 22.34 ± 12.36, 32.13 ± 1.95, 10.10 ± 3.65, "
    "28.01 ± 0.74, 18.95 ± 0.22, 25.69 ± 0.41, 21.26 ± 0.89, 18.19 ± 0.99",
    "FedAvg + Data": "53.43 ± 2.89, 33.87 ± 2.53, 65.73 ± 1.07, 63.32 ± 0.49, 41.61 ± 0.92, "
    "28.12 ± 0.63, 19.01 ± 0.27, 25.85 ± 0.27, 25.18 ± 0.39, 18.23 ± 0.84",
    "FedProx": "66.42 ± 1.79, 31.38 ± 2.54, 50.61 ± 1.53, 48.20 ± 0.14, 13.41 ± 3.39, "
    "28.21 ± 0.79, 27.78 ± 0.00, 25.79 ± 0.05, 24.93 ± 0.38, 18.18 ± 0.82",
    "LG-FedAvg": "70.87 ± 1.12, 74.16 ± 2.37, 67.25 ± 1.97, 63.64 ± 2.52, 94.42 ± 1.25, "
    "26.97 ± 7.52, 24.69 ± 4.29, 24.79 ± 4.50, 25.62 ± 5.70, 27.53 ± 9.12",
    "CFL": "72.58 ± 10.30, 75.69 ± 1.11, 78.31 ± 12.90, 70.04 ± 13.56, 85.22 ± 6.70, "
    "41.50 ± 6.66, 36.36 ± 10.72, 37.41 ± 8.30, 36.78 ± 12.05, 34.43 ± 10.14",
    "pFedMe (R=1)": "49.87 ± 3.16, 66.95 ± 10.65, 69.00 ± 4.97, 78.66 ± 3.72, 94.57 ± 1.95, "
    "31.53 ± 3.83, 32.39 ± 5.36, 30.86 ± 3.75, 30.86 ± 3.80, 37.70 ± 2.13",
    "FedFomo (n=5)": "77.82 ± 2.24, 82.38 ± 0.66, 84.45 ± 0.21, 85.05 ± 0.13, 95.55 ± 0.26, "
    "35.44 ± 1.91, 36.21 ± 4.92, 38.41 ± 2.58, 42.96 ± 1.24, 44.29 ± 1.22",
    "FedFomo (n=10)": "79.59 ± 0.34, 83.66 ± 0.72, 84.35 ± 0.38, 85.53 ± 0.53, 95.55 ± 0.06, "
    "37.09 ± 1.95, 37.09 ± 3.84, 39.94 ± 0.74, 43.06 ± 0.42, 43.75 ± 1.74",
}
"""CIFAR-10 (Table 2) and CIFAR-100 (Table 5), each with 2, 3, 4, 5 and 10 distributions."""


def experiment(scale: str) -> Experiment:
    paper = replace(PAPER_CNN, rounds=20, weight_decay=1e-4, learning_rate=0.1)
    datasets = at_scale(
        scale,
        smoke={"": ("digits", "train=30", SMOKE)},
        small={"": ("cifar10", "train=100,test=1000", SMALL_CNN)},
        paper={"": ("cifar10", "train=none", paper), "CIFAR-100, ": ("cifar100", "train=none", paper)},
    )
    columns = [
        Column(f"{label}{number} distributions", f"latent:{dataset}:clients=15,groups={number},{size}", settings)
        for label, (dataset, size, settings) in datasets.items()
        for number in at_scale(scale, smoke=(2, 10), small=NUMBERS, paper=NUMBERS)
    ]
    return Experiment(
        title="FedFomo, Tables 2 and 5: accuracy over latent distributions",
        columns=tuple(columns),
        methods=METHODS,
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2)),
        paper={
            row: {column.label: text for column, text in zip(columns, texts.split(", "), strict=False)}
            for row, texts in PAPER.items()
        },
    )
