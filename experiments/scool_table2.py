"""SCooL, Table 2: accuracy of personalised models, two kinds of non-IID tasks."""

from scool_ppl.reproduce import Column, Experiment, Method, at_scale
from scool_ppl.reproduce.scales import SMALL_CNN, SMALL_MLP, SMOKE
from scool_ppl.workflow import Settings

RATES = ({"--learning-rate": 0.02}, {"--learning-rate": 0.05}, {"--learning-rate": 0.1})
METHODS = (
    Method("Local SGD only", "local", RATES),
    Method("FedAvg", "fedavg", RATES, deployed="mixed"),
    Method("FedFomo", "fedfomo", ({}, {"count": 10}, {"fallback": "trained"})),
    Method("Ditto", "ditto", ({"strength": 1.0}, {"strength": 0.1}, {"strength": 0.01})),
    Method("D-PSGD", "dpsgd", ({}, {"topology": "group-ring"}, {"topology": "bipartite"})),
    Method("CoBo", "cobo", ({}, {"rho": 0.1}, {"gamma": 0.1})),
    Method("meta-L2C", "meta_l2c", ({}, {"scale": 10.0}, {"learning_rate": 0.01})),
    Method("SCooL-SBM", "scool_sbm", ({}, {"n_eff": 2.0}, {"reference": "marginal"})),
    Method("SCooL-attention", "scool_attention", ({}, {"n_eff": 10.0}, {"n_eff": 20.0})),
    Method("SCooL-MMSBM", "scool_mmsbm", ({}, {"n_eff": 2.0}, {"reference": "marginal"})),
)

PAPER = {
    "Local SGD only": ("87.5 ± 7.0", "87.4 ± 4.2"),
    "FedAvg": ("70.7 ± 10.6", "71.6 ± 12.9"),
    "FedFomo": ("88.7 ± 5.4", "90.3 ± 2.7"),
    "Ditto": ("87.3 ± 6.4", "88.1 ± 7.4"),
    "D-PSGD": ("75.9 ± 6.7", "77.3 ± 5.8"),
    "meta-L2C": ("92.1 ± 4.7", "91.8 ± 2.4"),
    "SCooL-SBM": ("91.4 ± 5.0", "94.1 ± 2.3"),
    "SCooL-attention": ("92.2 ± 5.2", "94.0 ± 3.9"),
}
"""On CIFAR-10, ± over clients; D-PSGD with five local epochs. CoBo and MMSBM are not in the paper's table."""


def experiment(scale: str) -> Experiment:
    sizes = at_scale(
        scale,
        smoke={"digits": ("clients=10,train=30", SMOKE)},
        small={
            "mnist": ("clients=20,train=50,test=1000", SMALL_MLP),
            "cifar10": ("clients=20,train=100,test=1000", SMALL_CNN),
        },
        paper={
            "cifar10": ("clients=100", Settings(rounds=100, warmup_epochs=5, learning_rate=0.01)),
            "cifar100": ("clients=100", Settings(rounds=100, warmup_epochs=5, learning_rate=0.01)),
        },
    )
    columns, paper = [], {label: {} for label in PAPER}
    for dataset, (size, settings) in sizes.items():
        classes, groups = (10, 10) if dataset == "cifar100" else (2, 5)
        kinds = {
            "non-IID": f"pathological:{dataset}:{size},classes={classes}",
            "non-IID SBM": f"groups:{dataset}:{size},classes={classes},groups={groups}",
        }
        for place, (kind, federation) in enumerate(kinds.items()):
            columns.append(Column(f"{kind}, {dataset}", federation, settings))
            for label, printed in PAPER.items():
                if dataset == "cifar10":
                    paper[label][columns[-1].label] = printed[place]
    return Experiment(
        title="SCooL, Table 2: accuracy of personalised models",
        columns=tuple(columns),
        methods=METHODS,
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        paper=paper,
    )
