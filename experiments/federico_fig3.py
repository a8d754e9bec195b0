"""FedeRiCo, Figure 3: the weights of one client over the rounds.

Four distributions, as there, of CIFAR-100 at scale `paper`; what else differs, see `federico_table1.py`.
"""

from scool_ppl.reproduce import PAPER_FEDERICO, SMALL_MLP, SMOKE, Column, Experiment, Method, at_scale, figures

METHODS = (
    Method("FedeRiCo", "federico"),
    Method("FedFomo", "fedfomo"),
    Method("SCooL-SBM", "scool_sbm"),
)


def experiment(scale: str) -> Experiment:
    dataset, size, settings = at_scale(
        scale,
        smoke=("digits", "clients=8,classes=2,train=40", SMOKE),
        small=("mnist", "clients=16,classes=2,train=50,test=1000", SMALL_MLP),
        paper=("cifar100", "clients=8,classes=25,train=937", PAPER_FEDERICO),
    )
    return Experiment(
        title="FedeRiCo, Figure 3: the weights of one client over the rounds",
        columns=(Column("4 distributions", f"groups:{dataset}:groups=4,{size}", settings),),
        methods=METHODS,
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2)),
        graphs=tuple(range(1, settings.rounds + 1)),
        measures=("accuracy", "l1"),
        figures=lambda results: {"weights": figures.weights_of_client(results)},
    )
