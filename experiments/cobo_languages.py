"""CoBo, Table 2 (language models): clients who write in different languages; next-character prediction.

As whole networks, tiny ones, and as adapters (LoRA) of a frozen body, as in the paper. Its body is GPT-2 and pretrained,
here it is a smaller one of the same form whose weights are random, as nothing is downloaded; for the paper's give a folder
of texts, `text:FOLDER:tokens=gpt2`, and the network `lora:gpt2`. The optimiser is AdamW, as such networks are trained; how
the paper trains its own it does not say, but for the rate, 0.002. The paper's Validation Based weighs networks by
their validation losses, as FedFomo does, which is here in its place.
"""

from dataclasses import replace

from scool_ppl.reproduce import SMOKE, Column, Experiment, Method, at_scale
from scool_ppl.workbench import Settings

RATES = ({"--learning-rate": 0.01}, {"--learning-rate": 0.003}, {"--learning-rate": 0.03})
SIMPLEX = {"domain": "simplex"}
METHODS = (
    Method("Local", "local", RATES),
    Method("FedAvg", "fedavg", RATES, deployed="mixed"),
    Method("Fine-tuning FedAvg", "fedavg", RATES, deployed="trained"),
    Method("Ditto", "ditto", ({"strength": 1.0}, {"strength": 0.1}, {"strength": 0.01})),
    Method("FedFomo", "fedfomo", ({}, {"epsilon": 0.1}, {"norm": 1.0})),
    Method("CoBo", "cobo", (SIMPLEX, {**SIMPLEX, "rho": 0.5}, {**SIMPLEX, "gamma": 0.1})),
    Method("SCooL-SBM", "scool_sbm", ({}, {"n_eff": 2.0}, {"n_eff": 20.0})),
    Method("Hedge, the default", "hedge", RATES, deployed="deployed"),
    Method("Oracle", "oracle", RATES),
)
PAPER = {
    "Local": ("41.26 ± 0.38", None),
    "FedAvg": ("64.84 ± 0.00", "0"),
    "Fine-tuning FedAvg": ("46.70 ± 0.07", "0"),
    "Ditto": ("40.05 ± 0.01", "100"),
    "FedFomo": ("42.90 ± 1.68 (Validation Based)", "75 (Validation Based)"),
    "CoBo": ("39.28 ± 0.01", "100"),
}
"""GPT-2 with LoRA, four clients with articles in Catalan, Spanish, German or Dutch, 500 steps: what compares is the order,
not the numbers. Here two clients share a made-up language."""


def experiment(scale: str) -> Experiment:
    size, settings = at_scale(
        scale,
        smoke=("clients=4,groups=2,train=6,test=10", SMOKE),
        small=("clients=8,groups=4,train=16", Settings(executor="stacked", optimizer="adamw", learning_rate=0.01)),
        paper=(
            "clients=8,groups=4,train=200,test=400",
            Settings(executor="stacked", optimizer="adamw", learning_rate=0.002, rounds=100, local_steps=5),
        ),
    )
    columns = (
        Column("text", f"text:{size}", settings),
        Column("adapters", f"text:{size}", replace(settings, network="lora"), seeds=3),
    )
    heads = ("adapters, perplexity", "adapters, clients improved, %")
    return Experiment(
        title="CoBo, Table 2: clients who write in different languages",
        columns=columns[:1] if scale == "smoke" else columns,
        methods=METHODS,
        measures=("perplexity", "improved"),
        seeds=at_scale(scale, smoke=(0,), small=tuple(range(10, 15)), paper=tuple(range(10, 15))),
        paper={
            row: {head: text for head, text in zip(heads, texts, strict=True) if text is not None}
            for row, texts in PAPER.items()
            if scale != "smoke"
        },
    )
