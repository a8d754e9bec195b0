"""SCooL, Figures 4 and 5: the learned cooperation graphs over the rounds, beside the truth."""

from scool_ppl.reproduce import Column, Experiment, Method, at_scale, figures
from scool_ppl.reproduce.scales import SMALL_MLP, SMOKE
from scool_ppl.workflow import Settings

METHODS = (Method("SCooL-SBM", "scool_sbm"), Method("SCooL-attention", "scool_attention"))


def experiment(scale: str) -> Experiment:
    dataset, size, settings, rounds = at_scale(
        scale,
        smoke=("digits", "clients=10,train=30", SMOKE, (1, 2)),
        small=("mnist", "clients=30,train=50,test=1000", SMALL_MLP, (1, 2, 5, 10, 20)),
        paper=(
            "cifar10",
            "clients=100",
            Settings(rounds=100, warmup_epochs=5, learning_rate=0.01),
            (1, 5, 10, 20, 100),
        ),
    )
    return Experiment(
        title="SCooL, Figures 4 and 5: the learned graphs over the rounds",
        columns=(
            Column("non-IID SBM", f"groups:{dataset}:{size},groups=5,classes=2", settings),
            Column("non-IID", f"pathological:{dataset}:{size},classes=2", settings),
        ),
        methods=METHODS,
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        graphs=rounds,
        measures=("l1", "ari"),
        figures=figures.weights_over_rounds,
    )
