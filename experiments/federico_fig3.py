"""FedeRiCo, Figure 3: the weights of one client over the rounds."""

from scool_ppl.reproduce import Column, Experiment, Method, at_scale, figures
from scool_ppl.reproduce.scales import SMALL_MLP, SMOKE
from scool_ppl.workflow import Settings

METHODS = (
    Method("FedeRiCo", "federico"),
    Method("FedFomo", "fedfomo"),
    Method("SCooL-SBM", "scool_sbm"),
)


def experiment(scale: str) -> Experiment:
    dataset, size, settings = at_scale(
        scale,
        smoke=("digits", "train=40", SMOKE),
        small=("mnist", "train=50,test=1000", SMALL_MLP),
        paper=("cifar10", "train=625", Settings(rounds=150, local_epochs=1, warmup_epochs=1, batch_size=50)),
    )
    return Experiment(
        title="FedeRiCo, Figure 3: the weights of one client over the rounds",
        columns=(Column("2 distributions", f"groups:{dataset}:clients=8,groups=2,classes=5,{size}", settings),),
        methods=METHODS,
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2)),
        graphs=tuple(range(1, settings.rounds + 1)),
        measures=("accuracy", "l1"),
        figures=lambda results: {"weights": figures.weights_of_client(results)},
    )
