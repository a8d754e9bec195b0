"""FedFomo, Table 3: the target of every client is another client's distribution.

Not as in the paper at scale `paper`: the clusters are those of pixels; give features of a network as the dataset for
the paper's; learning rates do not decay by 1 % a round; batches of 10, as their size is not printed; pFedMe takes one
step of the common network a round; MOCHA and Per-FedAvg are left out (models/README.md says why).
"""

from dataclasses import replace

from scool_ppl.reproduce import PAPER_CNN, SMALL_CNN, SMOKE, Column, Experiment, Method, as_printed, at_scale

RATES = ({"--learning-rate": 0.02}, {"--learning-rate": 0.05}, {"--learning-rate": 0.1})
PULLS: tuple[dict[str, float], ...] = ({}, {"mu": 0.01}, {"mu": 1.0})
METHODS = (
    Method("Local Training", "local", RATES),
    Method("FedAvg", "fedavg", RATES, deployed="mixed"),
    Method("FedAvg + Data", "fedavg", tuple({":common": 0.05, **rate} for rate in RATES), deployed="mixed"),
    Method("FedProx", "fedprox", PULLS, deployed="mixed"),
    Method("LG-FedAvg", "fedavg", tuple({"--private": "body", **rate} for rate in RATES)),
    Method("CFL", "cfl", ({}, {"eps1": 0.4}, {"eps2": 1.6})),
    Method("pFedMe (R=1)", "fedprox", PULLS, deployed="trained"),
    Method("FedFomo (n=5)", "fedfomo", tuple({"count": 5, **more} for more in ({}, {"epsilon": 0.1}, {"norm": 1.0}))),
    Method("FedFomo (n=10)", "fedfomo", tuple({"count": 10, **more} for more in ({}, {"epsilon": 0.1}, {"norm": 1.0}))),
    Method("L2C", "l2c", ({}, {"steps": 20}, {"learning_rate": 0.03})),
    Method("meta-L2C", "meta_l2c", ({}, {"scale": 10.0}, {"learning_rate": 0.01})),
    Method("FedeRiCo", "federico", ({}, {"n_eff": 5.0}, {"count": 10})),
    Method("SCooL-SBM", "scool_sbm", ({}, {"n_eff": 2.0}, {"reference": "marginal"})),
    Method("Hedge, the default", "hedge", RATES, deployed="deployed"),
)
PAPER = {
    "Local Training": ("20.39 ± 3.36", "7.40 ± 1.31"),
    "FedAvg": ("23.11 ± 2.51", "13.06 ± 1.48"),
    "FedAvg + Data": ("42.15 ± 2.16", "24.98 ± 4.98"),
    "FedProx": ("39.79 ± 8.57", "14.39 ± 2.85"),
    "LG-FedAvg": ("38.95 ± 1.85", "18.50 ± 1.10"),
    "CFL": ("29.73 ± 3.67", "19.75 ± 1.58"),
    "pFedMe (R=1)": ("43.70 ± 7.27", "25.41 ± 2.33"),
    "FedFomo (n=5)": ("64.06 ± 2.80", "34.43 ± 1.48"),
    "FedFomo (n=10)": ("63.98 ± 1.81", "40.94 ± 1.62"),
}
"""CIFAR-10 and CIFAR-100."""


def experiment(scale: str) -> Experiment:
    datasets, size, settings = at_scale(
        scale,
        smoke=(["digits"], "clients=10,train=30", SMOKE),
        small=(["cifar10"], "clients=15,train=100,test=1000", SMALL_CNN),
        paper=(
            ["cifar10", "cifar100"],
            "clients=15",
            replace(PAPER_CNN, rounds=20, weight_decay=1e-4, learning_rate=0.1),
        ),
    )
    labels = [f"{dataset}, 5 latent distributions" for dataset in datasets]
    return Experiment(
        title="FedFomo, Table 3: accuracy on a target that differs from the training data",
        columns=tuple(
            Column(label, f"shuffled-targets:{dataset}:{size},groups=5", settings)
            for label, dataset in zip(labels, datasets, strict=True)
        ),
        methods=at_scale(scale, smoke=as_printed(METHODS, {}), small=METHODS, paper=as_printed(METHODS, {})),
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        paper={method: dict(zip(labels, texts, strict=False)) for method, texts in PAPER.items()},
    )
