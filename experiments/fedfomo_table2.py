"""FedFomo, Table 2: accuracy with 15 clients in 2 to 10 latent distributions.

Not as in the paper at scale `paper`: the clusters are those of pixels; give features of a network as the dataset for
the paper's; learning rates do not decay by 1 % a round; batches of 10, as their size is not printed; MOCHA and
Per-FedAvg are left out, pFedMe and FedAvg + Data are not run yet (models/README.md says what they are).
"""

from dataclasses import replace

from scool_ppl.reproduce import PAPER_CNN, SMALL_CNN, SMOKE, Column, Experiment, Method, at_scale

METHODS = (
    Method("Local Training", "local"),
    Method("FedAvg", "fedavg", deployed="mixed"),
    Method("FedProx", "fedprox", deployed="mixed"),
    Method("LG-FedAvg", "fedavg", ({"--private": "body"},)),
    Method("CFL", "cfl"),
    Method("FedFomo (n=5)", "fedfomo", ({"count": 5},)),
    Method("FedFomo (n=10)", "fedfomo", ({"count": 10},)),
    Method("SCooL-SBM", "scool_sbm"),
    Method("Hedge, the default", "hedge", deployed="deployed"),
)
NUMBERS = (2, 3, 4, 5, 10)
PAPER = {
    "Local Training": ("60.03 ± 9.22", "66.61 ± 9.90", "69.12 ± 12.07", "76.52 ± 11.46", "92.64 ± 7.32"),
    "FedAvg": ("38.92 ± 11.88", "21.56 ± 9.14", "22.34 ± 12.36", "32.13 ± 1.95", "10.10 ± 3.65"),
    "FedProx": ("66.42 ± 1.79", "31.38 ± 2.54", "50.61 ± 1.53", "48.20 ± 0.14", "13.41 ± 3.39"),
    "LG-FedAvg": ("70.87 ± 1.12", "74.16 ± 2.37", "67.25 ± 1.97", "63.64 ± 2.52", "94.42 ± 1.25"),
    "CFL": ("72.58 ± 10.30", "75.69 ± 1.11", "78.31 ± 12.90", "70.04 ± 13.56", "85.22 ± 6.70"),
    "FedFomo (n=5)": ("77.82 ± 2.24", "82.38 ± 0.66", "84.45 ± 0.21", "85.05 ± 0.13", "95.55 ± 0.26"),
    "FedFomo (n=10)": ("79.59 ± 0.34", "83.66 ± 0.72", "84.35 ± 0.38", "85.53 ± 0.53", "95.55 ± 0.06"),
}


def experiment(scale: str) -> Experiment:
    dataset, size, settings = at_scale(
        scale,
        smoke=("digits", "train=30", SMOKE),
        small=("cifar10", "train=100,test=1000", SMALL_CNN),
        paper=("cifar10", "train=none", replace(PAPER_CNN, rounds=20, weight_decay=1e-4, learning_rate=0.1)),
    )
    numbers = at_scale(scale, smoke=NUMBERS, small=(2, 4, 10), paper=NUMBERS)
    labels = {number: f"{number} distributions" for number in numbers}
    return Experiment(
        title="FedFomo, Table 2: accuracy over latent distributions",
        columns=tuple(
            Column(label, f"latent:{dataset}:clients=15,groups={number},{size}", settings)
            for number, label in labels.items()
        ),
        methods=METHODS,
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2)),
        paper={
            row: {labels[number]: text for number, text in zip(NUMBERS, texts, strict=True) if number in labels}
            for row, texts in PAPER.items()
        },
    )
