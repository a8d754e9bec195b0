"""L2C, Table 3: fairness, the spread of accuracy over the clients."""

from scool_ppl.reproduce import PAPER_CNN, SMALL_CNN, SMOKE, Column, Experiment, Method, as_printed, at_scale

METHODS = (
    Method("Local SGD only", "local"),
    Method("FOMO", "fedfomo"),
    Method("L2C", "l2c"),
    Method("meta-L2C", "meta_l2c"),
    Method("SCooL-SBM", "scool_sbm"),
    Method("Hedge, the default", "hedge", deployed="deployed"),
)
PRINTED = {"FOMO": {"count": 10}, **{label: {"keep": 10} for label in ("L2C", "meta-L2C", "SCooL-SBM")}}
"""Everybody learns from a tenth; L2C drops the others after ten rounds."""
PAPER = {
    "Local SGD only": ("87.50 ± 1.37", "77.35 ± 2.59", "81.59 ± 10.03", "8.14 ± 5.61"),
    "FOMO": ("88.72 ± 0.29", "78.80 ± 10.00", "85.20 ± 4.96", "9.02 ± 5.72"),
    "L2C": ("90.14 ± 0.34", "83.02 ± 4.99", "85.10 ± 0.36", "5.85 ± 3.31"),
    "meta-L2C": ("92.10 ± 0.72", "82.90 ± 2.49", "88.84 ± 0.21", "7.34 ± 4.15"),
}
MEASURES = {
    "accuracy": "accuracy, %",
    "worst10": "worst 10 %, %",
    "worst20": "worst 20 %, %",
    "std": "std over clients, %",
}


def experiment(scale: str) -> Experiment:
    dataset, size, settings = at_scale(
        scale,
        smoke=("digits", "clients=10,train=30", SMOKE),
        small=("cifar10", "clients=20,train=100,test=1000", SMALL_CNN),
        paper=("cifar10", "clients=100", PAPER_CNN),
    )
    return Experiment(
        title="L2C, Table 3: spread of accuracy over the clients",
        columns=(Column(dataset, f"pathological:{dataset}:{size},classes=2", settings),),
        methods=at_scale(
            scale, smoke=METHODS, small=METHODS, paper=as_printed(METHODS, PRINTED, rates=(0.01, 0.05, 0.1))
        ),
        measures=tuple(MEASURES),
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        paper={label: dict(zip(MEASURES.values(), texts, strict=True)) for label, texts in PAPER.items()},
    )
