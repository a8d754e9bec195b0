"""SCooL, Figures 4 and 5: the learned cooperation graphs over the rounds, beside the truth."""

from scool_ppl.reproduce import PAPER_CNN, SMALL_MLP, SMOKE, Column, Experiment, Method, as_printed, at_scale, figures

METHODS = (Method("SCooL-SBM", "scool_sbm"), Method("SCooL-attention", "scool_attention"))
PRINTED = {method.label: {"keep": 10} for method in METHODS}
"""After ten rounds a tenth of the peers stays."""


def experiment(scale: str) -> Experiment:
    dataset, size, settings, rounds = at_scale(
        scale,
        smoke=("digits", "clients=10,train=30", SMOKE, (1, 2)),
        small=("mnist", "clients=30,train=50,test=1000", SMALL_MLP, (1, 2, 5, 10, 20)),
        paper=("cifar10", "clients=100", PAPER_CNN, (1, 5, 10, 20, 100)),
    )
    return Experiment(
        title="SCooL, Figures 4 and 5: the learned graphs over the rounds",
        columns=(
            Column("non-IID SBM", f"groups:{dataset}:{size},groups=5,classes=2", settings),
            Column("non-IID", f"pathological:{dataset}:{size},classes=2", settings),
        ),
        methods=at_scale(scale, smoke=METHODS, small=METHODS, paper=as_printed(METHODS, PRINTED)),
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        graphs=rounds,
        measures=("l1", "ari"),
        figures=figures.weights_over_rounds,
    )
