"""L2C, Figure 7: mixing weights against the number of classes that two clients share."""

from scool_ppl.reproduce import PAPER_CNN, SMALL_MLP, SMOKE, Column, Experiment, Method, as_printed, at_scale, figures

METHODS = (
    Method("L2C", "l2c"),
    Method("meta-L2C", "meta_l2c"),
    Method("SCooL-SBM", "scool_sbm"),
    Method("SCooL-attention", "scool_attention"),
)
PRINTED = {method.label: {"keep": 10} for method in METHODS}
"""After ten rounds a tenth of the peers stays."""


def experiment(scale: str) -> Experiment:
    dataset, size, settings = at_scale(
        scale,
        smoke=("digits", "clients=10,train=30,classes=5", SMOKE),
        small=("mnist", "clients=20,train=100,test=1000,classes=5", SMALL_MLP),
        paper=("cifar100", "clients=100,classes=10", PAPER_CNN),
    )
    return Experiment(
        title="L2C, Figure 7: mixing weights against shared classes",
        columns=(Column(dataset, f"pathological:{dataset}:{size}", settings),),
        methods=at_scale(scale, smoke=METHODS, small=METHODS, paper=as_printed(METHODS, PRINTED)),
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        graphs=(settings.rounds,),
        figures=lambda results: {"shared": figures.weight_by_shared_classes(results)},
    )
