"""Hostile clients: honest clients' accuracy when 0 to 40 % of the clients attack, with and without clipping."""

from scool_ppl.reproduce import SMALL_MLP, SMOKE, Column, Experiment, Method, at_scale
from scool_ppl.train import Attack

METHODS = (
    Method("Local", "local"),
    Method("FedAvg", "fedavg", deployed="mixed"),
    Method("FedAvg, clip 1", "fedavg", ({"clip": 1.0},), deployed="mixed"),
    Method("FedAvg, clip 3", "fedavg", ({"clip": 3.0},), deployed="mixed"),
    Method("FedFomo", "fedfomo", deployed="mixed"),
    Method("CoBo", "cobo", deployed="mixed"),
    Method("SCooL-SBM", "scool_sbm", deployed="mixed"),
    Method("SCooL-SBM, clip 1", "scool_sbm", ({"clip": 1.0},), deployed="mixed"),
    Method("SCooL-SBM, clip 3", "scool_sbm", ({"clip": 3.0},), deployed="mixed"),
)
ATTACKS: tuple[Attack, ...] = ("sign-flip", "scaled", "random", "collude", "label-flip")


def experiment(scale: str) -> Experiment:
    federation, settings, shares = at_scale(
        scale,
        smoke=("permuted:digits:clients=10,groups=2,train=30", SMOKE, (0.4,)),
        # Who is hostile goes by places; that no method here looks at them is all that matters.
        small=("permuted:digits:clients=20,groups=2,train=50,order=listed", SMALL_MLP, (0.2, 0.4)),
        paper=("groups:cifar10:clients=100,groups=5,classes=2", SMALL_MLP, (0.1, 0.2, 0.4)),
    )
    attacked = [
        Column(f"{attack}, {share:.0%}", federation, settings, attack, share) for attack in ATTACKS for share in shares
    ]
    return Experiment(
        title="Accuracy of the honest clients when others are hostile",
        columns=(Column("all honest", federation, settings), *attacked),
        methods=METHODS,
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2)),
        transposed=True,
    )
