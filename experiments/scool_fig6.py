"""SCooL, Figure 6: L1 distance of the mixing weights from the truth in the first 20 rounds."""

from dataclasses import replace

from scool_ppl.reproduce import PAPER_CNN, SMALL_MLP, SMOKE, Column, Experiment, Method, as_printed, at_scale, figures

METHODS = (Method("SCooL-SBM", "scool_sbm"), Method("SCooL-attention", "scool_attention"))
PRINTED = {method.label: {"keep": 10} for method in METHODS}
"""After ten rounds a tenth of the peers stays."""


def experiment(scale: str) -> Experiment:
    dataset, size, settings = at_scale(
        scale,
        smoke=("digits", "clients=10,train=30", SMOKE),
        small=("mnist", "clients=50,train=50,test=1000", SMALL_MLP),
        paper=("cifar10", "clients=100", replace(PAPER_CNN, rounds=20)),
    )
    return Experiment(
        title="SCooL, Figure 6: L1 distance of the graph from the truth over the rounds",
        columns=(
            Column("non-IID SBM", f"groups:{dataset}:{size},groups=5,classes=2", settings),
            Column("non-IID", f"pathological:{dataset}:{size},classes=2", settings),
        ),
        methods=at_scale(scale, smoke=METHODS, small=METHODS, paper=as_printed(METHODS, PRINTED)),
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        measures=("l1", "accuracy"),
        figures=lambda results: {"l1": figures.curves(results, "l1", "L1 distance from the truth")},
    )
