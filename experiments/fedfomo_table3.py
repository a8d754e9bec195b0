"""FedFomo, Table 3: the target of every client is another client's distribution."""

from scool_ppl.reproduce import Column, Experiment, Method, at_scale
from scool_ppl.reproduce.scales import SMALL_CNN, SMOKE
from scool_ppl.workflow import Settings

RATES = ({"--learning-rate": 0.02}, {"--learning-rate": 0.05}, {"--learning-rate": 0.1})
METHODS = (
    Method("Local Training", "local", RATES),
    Method("FedAvg", "fedavg", RATES, deployed="mixed"),
    Method("FedFomo (n=5)", "fedfomo", tuple({"count": 5, **more} for more in ({}, {"epsilon": 0.1}, {"norm": 1.0}))),
    Method("FedFomo (n=10)", "fedfomo", tuple({"count": 10, **more} for more in ({}, {"epsilon": 0.1}, {"norm": 1.0}))),
    Method("L2C", "l2c", ({}, {"steps": 20}, {"learning_rate": 0.03})),
    Method("meta-L2C", "meta_l2c", ({}, {"scale": 10.0}, {"learning_rate": 0.01})),
    Method("FedeRiCo", "federico", ({}, {"n_eff": 5.0}, {"count": 10})),
    Method("SCooL-SBM", "scool_sbm", ({}, {"n_eff": 2.0}, {"reference": "marginal"})),
)
PAPER = {
    "Local Training": "20.39 ± 3.36",
    "FedAvg": "23.11 ± 2.51",
    "FedFomo (n=5)": "64.06 ± 2.80",
    "FedFomo (n=10)": "63.98 ± 1.81",
}


def experiment(scale: str) -> Experiment:
    dataset, size, settings = at_scale(
        scale,
        smoke=("digits", "clients=10,train=30", SMOKE),
        small=("cifar10", "clients=15,train=100,test=1000", SMALL_CNN),
        paper=("cifar10", "clients=15", Settings(warmup_epochs=5)),
    )
    label = f"{dataset}, 5 latent distributions"
    return Experiment(
        title="FedFomo, Table 3: accuracy on a target that differs from the training data",
        columns=(Column(label, f"shuffled-targets:{dataset}:{size},groups=5", settings),),
        methods=METHODS,
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        paper={method: {label: text} for method, text in PAPER.items()},
    )
