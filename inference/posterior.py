"""The posterior over graphs of a fit: draws from q, credible edges, and how sure the block memberships are.

A membership is unsure, too, where several blocks stand for one community: the column `block` counts them as one.

python inference/posterior.py [MODEL] [FEDERATION] [ROUNDS] [DRAWS]
"""

import sys

import torch

from scool_ppl import EM, Clients, load_federation, load_model


def main(model: str = "scool_sbm", spec: str = "digits", rounds: str = "20", draws: str = "1000") -> None:
    federation = load_federation(spec, seed=0)
    clients = Clients(federation)
    fit = EM(load_model(model, clients.num_clients, federation=federation), clients).fit(rounds=int(rounds))
    graph = fit.graph
    samples = graph.sample(int(draws), seed=0)
    teachers = graph.peers.dense(samples.double().mean(0)).sum(1)
    edges = samples.flatten(1).sum(1).double()
    low, high = edges.quantile(torch.tensor([0.025, 0.975]).double()).tolist()
    print(f"edges in {draws} draws: {edges.mean():.1f} in the mean, 95 % of the draws between {low:.0f} and {high:.0f}")
    for level in (0.5, 0.95, 0.99):
        print(f"edges with probability above {level}: {int((graph.weights > level).sum())}")
    membership = torch.ones(len(graph.names), 1) if graph.memberships is None else graph.memberships
    sure = membership.max(1).values
    entropy = torch.special.entr(membership).sum(1)
    print(f"{'client':>12} {'teachers':>9} {'block':>6} {'probability':>12} {'entropy':>8}")
    for name, count, block, p, h in zip(graph.names, teachers, graph.blocks(), sure, entropy, strict=True):
        print(f"{name:>12} {count:9.2f} {int(block):6d} {p:12.3f} {h:8.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
