"""CoBo, Table 1: which pairs are looked at in a round; cross-silo clients with permuted labels.

Not as in the paper at scale `paper`: pairs are looked at once in 40 steps, not at every step, so there are fewer looks;
and `mixed` is constant in the first ten of 1,000 rounds, 1 % of the steps, in the paper .2 %.
"""

from dataclasses import replace

from scool_ppl.reproduce import PAPER_RESNET, SMALL_MLP, SMOKE, Column, Experiment, Method, as_printed, at_scale

PAIRS = {"Constant, 1/n": "clients", "Time-dependent, 1/t": "time", "Mixed": "mixed", "No sampling": "all"}
METHODS = tuple(
    Method(label, "cobo", tuple({"pairs": pairs, **more} for more in ({}, {"rho": 0.02}, {"gamma": 0.1})))
    for label, pairs in PAIRS.items()
)
PAPER = {
    "Constant, 1/n": ("73.05", "1.104"),
    "Time-dependent, 1/t": ("73.18", "1.226"),
    "Mixed": ("74.77", "1.081"),
    "No sampling": ("74.93", "1.278"),
}


def experiment(scale: str) -> Experiment:
    dataset, size, settings = at_scale(
        scale,
        smoke=("digits", "clients=8,groups=4,train=40", SMOKE),
        # As many steps as in Table 2, in rounds of an epoch: more looks.
        small=(
            "mnist",
            "clients=8,groups=4,train=50,test=1000",
            replace(SMALL_MLP, rounds=100, local_epochs=1, warmup_epochs=36),
        ),
        paper=("cifar100", "clients=8,groups=4", replace(PAPER_RESNET, rounds=1000, local_steps=40)),
    )
    return Experiment(
        title="CoBo, Table 1: which pairs are looked at",
        columns=(Column("cross-silo", f"permuted:{dataset}:{size}", settings),),
        methods=at_scale(scale, smoke=as_printed(METHODS, {}), small=METHODS, paper=as_printed(METHODS, {})),
        measures=("accuracy", "loss", "l1"),
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2)),
        paper={row: dict(zip(("accuracy, %", "loss"), texts, strict=True)) for row, texts in PAPER.items()},
    )
