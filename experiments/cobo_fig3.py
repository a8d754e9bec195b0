"""CoBo, Figure 3: the collaboration matrix over the rounds, 8 cross-silo clients.

At scale `paper` after 300, 5,000 and 40,000 steps, a round being 100; what else differs, see `cobo_table2.py`.
"""

from dataclasses import replace

from scool_ppl.reproduce import PAPER_RESNET, SMALL_MLP, SMOKE, Column, Experiment, Method, at_scale, figures

METHODS = (
    Method("FC", "fc"),
    Method("IFCA", "ifca", ({"components": 4},)),
    Method("CoBo", "cobo"),
    Method("SCooL-SBM", "scool_sbm"),
)


def experiment(scale: str) -> Experiment:
    dataset, size, settings, rounds = at_scale(
        scale,
        smoke=("digits", "train=40", SMOKE, (1, 2)),
        small=("mnist", "train=50,test=1000", SMALL_MLP, (1, 2, 5, 20)),
        paper=("cifar100", "train=none", replace(PAPER_RESNET, rounds=400, local_steps=100), (3, 50, 400)),
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
