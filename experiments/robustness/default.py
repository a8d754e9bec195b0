"""The default in every world: accuracy, regret and harm of `hedge` where tasks are alike, overlap, differ or are skewed."""

from dataclasses import replace

from scool_ppl.reproduce import SMALL_MLP, SMOKE, Column, Experiment, Method, at_scale
from scool_ppl.train import Attack
from scool_ppl.workbench import Settings

CNN = Settings(network="cnn", width=0.125, learning_rate=0.05, rounds=10, warmup_epochs=20, executor="loop")
FLIP = "permuted:digits:clients=20,groups=4,train=50"
TESTS = ("as-trained", "balanced")
DIRICHLET = "dirichlet:mnist:clients=20,test=1000"
WORLDS = {
    "flip20": FLIP,
    "flip40": "permuted:digits:clients=40,groups=8,train=32",
    "flip=4": f"{FLIP},flip=4",
    "flip=6": f"{FLIP},flip=6",
    "ragged": "permuted:digits:clients=20,groups=4,train=47,ragged=0.3",
    "iid": "iid:digits:clients=20,train=50",
    "all different": "permuted:digits:clients=20,groups=20,train=50",
    "rotated": "rotated:digits:clients=20,groups=4,train=50",
    "4 clients": "permuted:digits:clients=4,groups=2,train=50",
    "60 clients": "permuted:digits:clients=60,groups=6,train=20",
    "sine": "sine:",
    "text": "text:",
    "unequal": "iid:mnist:clients=20,sizes=10-500,test=1000",
    "pathological": "pathological:mnist:clients=20,train=50,test=1000,classes=2",
    "groups": "groups:mnist:clients=20,train=50,test=1000,classes=2,groups=5",
    "disjoint": "disjoint:mnist:clients=20,groups=5,train=50,test=1000",
    "shuffled targets": "shuffled-targets:mnist:clients=15,groups=5,train=100,test=1000",
    **{
        f"Dirichlet {alpha}, {train}, {tested}": f"{DIRICHLET},alpha={alpha},train={train},tested={tested}"
        for alpha in (0.1, 0.5)
        for train in (40, 200)
        for tested in TESTS
    },
}
CIFAR = {
    "groups, CIFAR-10": "groups:cifar10:clients=8,groups=2,classes=5,train=200,test=1000",
    "permuted, CIFAR-10": "permuted:cifar10:clients=8,groups=2,train=200,test=1000",
}
KNOWN = (
    *("flip20", "flip40", "flip=4", "flip=6", "ragged", "iid", "all different", "rotated", "4 clients", "60 clients"),
    *("text", "pathological", "groups", "disjoint", "shuffled targets", "groups, CIFAR-10", "permuted, CIFAR-10"),
)
"""Where the true groups are known."""
LIGHT = (
    *("flip20", "flip40", "flip=4", "iid", "all different", "rotated", "text", "sine", "pathological"),
    "Dirichlet 0.1, 40, as-trained",
)
"""Where every model of the zoo is run."""
HEAVY = 3
"""Seeds of the federations that take longest."""
ZOO = {
    "D-PSGD": "dpsgd",
    "Ditto": "ditto",
    "Dada": "dada",
    "MMSBM": "scool_mmsbm",
    "Attention": "scool_attention",
    "FedeRiCo": "federico",
    "FedFomo": "fedfomo",
    "CoBo": "cobo",
    "L2C": "l2c",
    "meta-L2C": "meta_l2c",
    "Latent space": "latent_space",
    "Covariate SBM": "covariate_sbm",
    "Ring": "ring",
}
STACKED = {"--deploy": "stack"}
HOSTILE = "permuted:digits:clients=20,groups=2,train=50"


def worlds() -> tuple[Column, ...]:
    """Every federation of the suite."""
    small = replace(SMALL_MLP, executor="stacked")
    hostile: tuple[Attack, ...] = ("random", "sign-flip", "label-flip")
    attacks = [(attack, share) for attack in hostile for share in (0.2, 0.4)]
    return (
        *(_column(label, spec, small) for label, spec in WORLDS.items()),
        *(Column(label, spec, CNN, seeds=HEAVY) for label, spec in CIFAR.items()),
        *(Column(f"{a}, {share:.0%} hostile", HOSTILE, small, a, share) for a, share in attacks),
    )


def _column(label: str, spec: str, settings: Settings) -> Column:
    """Numbers and tokens have networks of their own; clients of very different sizes are trained one by one."""
    if label in ("sine", "text"):
        settings = replace(settings, network="auto")
    if label == "unequal":
        settings = replace(settings, executor="loop")
    heavy = label in ("unequal", "shuffled targets") or ", 200," in label
    return Column(label, spec, settings, seeds=HEAVY if heavy else None)


def methods(columns: tuple[Column, ...]) -> tuple[Method, ...]:
    """What is compared in these columns, everything with the same candidates and the same rule of deployment."""
    labels = [column.label for column in columns]
    known, light = (tuple(label for label in some if label in labels) for some in (KNOWN, LIGHT))
    return (
        Method("Local", "local", deployed="mixed"),
        Method("FedAvg", "fedavg", (STACKED,), deployed="mixed"),
        Method("FedAvg, fine-tuned", "fedavg", (STACKED,), deployed="trained"),
        Method("FedAvg, stacked", "fedavg", (STACKED,), deployed="stack"),
        Method("SCooL-SBM", "scool_sbm", (STACKED,), deployed="mixed"),
        Method("SCooL-SBM, stacked", "scool_sbm", (STACKED,), deployed="stack"),
        Method("Oracle", "oracle", (STACKED,), deployed="mixed", only=known),
        Method("Hedge", "hedge", deployed="stack"),
        Method("Hedge, one network", "hedge", deployed="single"),
        Method("Hedge without everybody", "hedge", deployed="without everybody"),
        Method("Hedge, unseen as likely", "hedge", deployed="unseen as likely"),
        *(Method(f"{label}, stacked", name, (STACKED,), "stack", light, seeds=3) for label, name in ZOO.items()),
    )


def experiment(scale: str) -> Experiment:
    brief = replace(SMOKE, network="auto")
    tiny = {"iid": "iid:digits:clients=6,train=20,test=20", "sine": "sine:clients=6"}
    columns = at_scale(
        scale,
        smoke=tuple(Column(label, spec, brief) for label, spec in tiny.items()),
        small=worlds(),
        paper=worlds(),
    )
    return Experiment(
        title="The default against the best known method of every federation",
        columns=columns,
        methods=methods(columns),
        seeds=at_scale(scale, smoke=(0,), small=tuple(range(200, 210)), paper=tuple(range(200, 210))),
        transposed=True,
        compact=True,
    )
