"""FedFomo, Table 1: personalised accuracy on pathological non-IID tasks.

Not as in the paper at scale `paper`: all of the 100 clients take part in every round, not a tenth; learning rates do
not decay by 1 % a round; batches of 10, as their size is not printed; pFedMe takes one step of the common network a
round; MOCHA and Per-FedAvg are left out (models/README.md says why).
"""

from dataclasses import replace

from scool_ppl.reproduce import PAPER_CNN, SMALL_CNN, SMALL_MLP, SMOKE, Column, Experiment, Method, at_scale

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
PAPER = {
    "Local Training": ("99.62 ± 0.21", "94.25 ± 4.28", "92.73 ± 0.87", "85.42 ± 4.06"),
    "FedAvg": ("91.97 ± 2.17", "78.83 ± 9.68", "57.12 ± 1.14", "53.08 ± 7.40"),
    "FedAvg + Data": ("91.99 ± 2.14", "78.85 ± 9.66", "58.50 ± 1.67", "56.62 ± 8.92"),
    "FedProx": ("90.94 ± 1.85", "79.06 ± 10.88", "54.60 ± 3.26", "52.92 ± 5.56"),
    "LG-FedAvg": ("99.79 ± 0.07", "84.17 ± 1.92", "92.36 ± 1.00", "84.17 ± 4.45"),
    "CFL": ("95.00 ± 3.61", "92.26 ± 3.91", "85.07 ± 8.16", "77.75 ± 1.78"),
    "pFedMe (R=1)": ("97.70 ± 1.26", "88.40 ± 10.86", "83.85 ± 5.11", "71.75 ± 6.78"),
    "FedFomo (n=5)": ("99.62 ± 2.91", "98.81 ± 1.26", "93.01 ± 0.96", "92.10 ± 5.20"),
    "FedFomo (n=10)": ("99.63 ± 0.07", "98.71 ± 2.86", "92.73 ± 0.96", "92.67 ± 4.21"),
}
"""MNIST with 15 and 100 clients, CIFAR-10 with 15 and 100 clients."""


def experiment(scale: str) -> Experiment:
    sizes = at_scale(
        scale,
        smoke={"digits": ("train=30", SMOKE)},
        small={"mnist": ("train=100,test=1000", SMALL_MLP), "cifar10": ("train=100,test=1000", SMALL_CNN)},
        paper={
            "mnist": ("train=none", replace(PAPER_CNN, weight_decay=1e-4)),
            "cifar10": ("train=none", replace(PAPER_CNN, weight_decay=1e-4, learning_rate=0.1)),
        },
    )
    many = at_scale(scale, smoke=20, small=50, paper=100)
    columns = [
        Column(
            f"{dataset}, {clients} clients",
            f"pathological:{dataset}:clients={clients},{size}",
            # 20 rounds of 15 clients, 100 of 100.
            replace(settings, rounds=20) if scale == "paper" and clients == 15 else settings,
        )
        for dataset, (size, settings) in sizes.items()
        for clients in (15, many)
    ]
    # Whose numbers these are, where we have fewer clients.
    notes = at_scale(scale, smoke=("", ""), small=("", " (100 clients)"), paper=("", "")) * 2
    return Experiment(
        title="FedFomo, Table 1: accuracy on pathological non-IID tasks",
        columns=tuple(columns),
        methods=METHODS,
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2)),
        paper={
            label: {column.label: text + note for column, text, note in zip(columns, texts, notes, strict=False)}
            for label, texts in PAPER.items()
        },
    )
