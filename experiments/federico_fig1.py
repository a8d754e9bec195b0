"""FedeRiCo, Figure 1: clients fit lines on successive intervals of a noisy sine; the fits and the client weights."""

import math

from scool_ppl.reproduce import Column, Experiment, Method, at_scale, figures
from scool_ppl.workbench import Settings

RATES = ({"--learning-rate": 0.02}, {"--learning-rate": 0.05}, {"--learning-rate": 0.1})
METHODS = (
    Method("Local", "local", RATES),
    Method("FedAvg", "fedavg", RATES, deployed="mixed"),
    Method("FedeRiCo", "federico", ({}, {"n_eff": 5.0}, {"n_eff": 20.0})),
    Method("SCooL-SBM", "scool_sbm", ({}, {"n_eff": 2.0}, {"n_eff": 20.0})),
)


def experiment(scale: str) -> Experiment:
    rounds, epochs = at_scale(scale, smoke=(2, 3), small=(20, 40), paper=(20, 40))
    settings = Settings(network="linear", executor="stacked", rounds=rounds, warmup_epochs=epochs)
    return Experiment(
        title="FedeRiCo, Figure 1: lines on successive intervals of a sine",
        # The picture has intervals side by side; none of these methods looks at positions.
        columns=(Column("sine", "sine:clients=12,order=listed", settings),),
        methods=METHODS,
        measures=("r2", "loss"),
        # The default of the sine federation was made with smaller seeds.
        seeds=at_scale(scale, smoke=(0,), small=tuple(range(10, 15)), paper=tuple(range(10, 15))),
        graphs=(rounds,),
        predictions=True,
        figures=lambda results: {
            "fit": figures.fitted_curves(results, lambda x: (2 * math.pi / 3 * x).sin()),
            "weights": figures.client_order(results, "FedeRiCo"),
        },
    )
