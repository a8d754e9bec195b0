"""Clients come and go: two join a running federation, then two others leave; the graph's history goes by names.

python inference/churn.py [MODEL] [FEDERATION] [ROUNDS] [OUT]

ROUNDS are those of each of the three parts. OUT gets history.jsonl, a line a round: who was there, and who learned from
whom with which weight; and the last graph, as a picture and a file.
"""

import json
import sys
from pathlib import Path
from typing import Any

from scool_ppl import EM, Clients, CooperationModel, Federation, load_federation, load_model
from scool_ppl.deploy import Portfolio
from scool_ppl.plots import draw_graph, save_figure
from scool_ppl.runs import free_name


def main(model: str = "scool_sbm", spec: str = "digits", rounds: str = "5", out: str = "") -> None:
    folder = Path(out or free_name("runs", "inference-churn"))
    folder.mkdir(parents=True, exist_ok=True)

    def build(federation: Federation) -> CooperationModel | Portfolio:
        return load_model(model, federation.num_clients, federation=federation)

    whole = load_federation(spec, seed=0)
    first = whole.select(range(whole.num_clients - 2))
    newcomers = whole.select(range(whole.num_clients - 2, whole.num_clients))
    em = EM(build(first), Clients(first))
    state = em.init()
    lines: list[dict[str, Any]] = []
    for event in ("begin", "join", "leave"):
        if event == "join":
            em, state = em.join(state, newcomers, build)
            print(f"{' and '.join(newcomers.names)} join")
        elif event == "leave":
            em, state = em.leave(state, whole.names[:2], build)
            print(f"{' and '.join(whole.names[:2])} leave")
        for _ in range(int(rounds)):
            state, info = em.step(state)
            accuracy = em.evaluate(state).score
            graph = em.graph(state)
            edges = [(u, v, round(w, 3)) for u, v, w in graph.to_networkx(0.05).edges(data="weight")]
            lines.append(
                {"round": state.round, "clients": graph.names, "edges": edges, "left_out": dict(info.quarantined)}
            )
            print(f"round {state.round:3d}: {len(graph.names)} clients, accuracy {accuracy.nanmean():.3f}")
    (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in newcomers.names:
        learned = [line["round"] for line in lines if any(v == name for _, v, _ in line["edges"])]
        print(f"{name} learns from others from round {learned[0]} on" if learned else f"{name} learns from nobody")
    graph.save(folder / "graph.graphml")
    save_figure(draw_graph(graph), folder / "graph.png")
    print(f"scores of the last graph: {graph.score(em.clients.federation.truth)}")
    print(f"who learned from whom, by name: {folder}/history.jsonl")


if __name__ == "__main__":
    main(*sys.argv[1:])
