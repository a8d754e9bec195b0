"""SCooL, Figure 7: accuracy when every client communicates with 2, 5, 8 or 10 % of the others."""

from scool_ppl.reproduce import PAPER_CNN, SMALL_MLP, SMOKE, Column, Experiment, Method, at_scale, figures

BUDGETS = (2, 5, 8, 10)


def methods(clients: int, after: int) -> tuple[Method, ...]:
    rows = []
    for budget in BUDGETS:
        peers = max(1, round(clients * budget / 100))
        rows += [
            Method(f"SCooL-SBM, {budget} %", "scool_sbm", ({"keep": peers, "after": after},)),
            Method(f"SCooL-attention, {budget} %", "scool_attention", ({"keep": peers, "after": after},)),
            Method(f"D-PSGD, {budget} %", "dpsgd", ({"neighbours": peers},)),
        ]
    return tuple(sorted(rows, key=lambda row: row.model, reverse=True))


def place(method: Method) -> tuple[str, float]:
    label, budget = method.label.rstrip(" %").split(", ")
    return label, float(budget)


def experiment(scale: str) -> Experiment:
    dataset, clients, train, settings, after = at_scale(
        scale,
        smoke=("digits", 20, "train=20", SMOKE, 1),
        small=("mnist", 50, "train=50,test=1000", SMALL_MLP, 10),
        paper=("cifar10", 100, "train=none", PAPER_CNN, 10),
    )
    size = f"clients={clients},{train}"
    return Experiment(
        title="SCooL, Figure 7: accuracy under a communication budget",
        columns=(
            Column("non-IID SBM", f"groups:{dataset}:{size},groups=5,classes=2", settings),
            Column("non-IID", f"pathological:{dataset}:{size},classes=2", settings),
        ),
        methods=methods(clients, after),
        seeds=at_scale(scale, smoke=(0,), small=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        figures=lambda results: {
            "budget": figures.against(results, place, "communication budget, % of the clients", "accuracy, %")
        },
    )
