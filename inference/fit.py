"""Fit one model on one federation and keep the learned graph: the shortest complete program.

python inference/fit.py [MODEL] [FEDERATION] [ROUNDS] [OUT]
"""

import sys

import torch

from scool_ppl import EM, Clients, Schedule, load_federation, load_model
from scool_ppl.runs import free_name
from scool_ppl.zoo import DEFAULT_MODEL


def main(model: str = DEFAULT_MODEL, spec: str = "digits", rounds: str = "20", out: str = "") -> None:
    out = out or str(free_name("runs", "inference-fit"))
    federation = load_federation(spec, seed=0)
    clients = Clients(federation, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, weight_decay=5e-4))
    em = EM(load_model(model, clients.num_clients, federation=federation), clients, Schedule(local_epochs=5), seed=0)
    fit = em.fit(rounds=int(rounds), run=out)
    fit.graph.save(f"{out}/graph.graphml")
    scores = fit.graph.score(federation.truth)
    accuracy = fit.deployed.score
    print(f"accuracy {accuracy.mean():.3f} over clients, the worst {accuracy.min():.3f}")
    print(f"graph against the truth: {scores}")
    print(f"who learns from whom: {out}/graph.graphml")


if __name__ == "__main__":
    main(*sys.argv[1:])
