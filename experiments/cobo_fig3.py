"""CoBo, Figure 3: the collaboration matrix over the rounds, 8 cross-silo clients."""

from scool_ppl.reproduce import Column, Experiment, Method, at_scale, figures
from scool_ppl.reproduce.scales import SMALL_CNN, SMOKE
from scool_ppl.workflow import Settings

METHODS = (Method("CoBo", "cobo"), Method("SCooL-SBM", "scool_sbm"))


def experiment(scale: str) -> Experiment:
    dataset, size, settings, rounds = at_scale(
        scale,
        smoke=("digits", "train=40", SMOKE, (1, 2)),
        small=("cifar10", "train=200,test=1000", SMALL_CNN, (1, 2, 5, 10)),
        paper=("cifar10", "train=none", Settings(rounds=100, network="resnet9", batch_size=128), (1, 10, 100)),
    )
    return Experiment(
        title="CoBo, Figure 3: the collaboration matrix over the rounds",
        columns=(Column("cross-silo", f"permuted:{dataset}:clients=8,groups=4,{size}", settings),),
        methods=METHODS,
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2)),
        graphs=rounds,
        measures=("l1", "accuracy"),
        figures=figures.weights_over_rounds,
    )
