"""D-PSGD: gossip along a fixed graph (Lian et al., 2017; SCooL 4.1).

    Y = W, symmetric and doubly stochastic,  P(theta | Y) ~ exp(-lambda / 2 sum_ij Y_ij |theta_i - theta_j|^2)
    theta_i <- sum_j W_ij theta_j after local training                     a Dirac prior, cases 1.1 and 2.1

A gradient step of rate alpha with lambda = 1 / (2 alpha), as the sum of (12) has every pair twice, is (16) exactly:
theta_i <- sum_j W_ij theta_j - alpha grad L_i, `mix=before`, at every local step; --local-steps 1 where neighbours rest.
"""

from typing import Literal

import torch

from scool_ppl import CooperationModel, InputError
from scool_ppl.infer.priors import Dirac
from scool_ppl.look import Ignored
from scool_ppl.mix import MixModels, Pull


def adjacency(num_clients: int, topology: str, groups: int, neighbours: int) -> torch.Tensor:
    """Who is linked with whom, (K, K) bool, symmetric, no self links."""
    client = torch.arange(num_clients)
    linked = torch.full((num_clients, num_clients), topology == "complete")
    if topology == "bipartite":
        linked = client[:, None] % 2 != client % 2
    elif topology == "ring":
        steps = (client[:, None] - client).remainder(num_clients)
        # An odd number of neighbours needs one that is its partner's, too: the one across the ring.
        linked = (steps > 0) & ((steps <= neighbours // 2) | (neighbours % 2 == 1) & (2 * steps == num_clients))
    elif topology == "group-ring":
        rings = [ring for ring in client.tensor_split(groups) if len(ring)]
        for ring, following in zip(rings, rings[1:] + rings[:1], strict=True):
            linked[ring, ring.roll(-1)] = True
            linked[ring[0], following[0]] = True
    return (linked | linked.T).fill_diagonal_(False)


def metropolis(linked: torch.Tensor) -> torch.Tensor:
    """Weights 1 / (1 + max degree of the two) on links, the rest on the client: symmetric and doubly stochastic."""
    degree = linked.sum(1)
    weights = linked / (1 + torch.maximum(degree[:, None], degree)).double()
    return weights + torch.diag(1 - weights.sum(1))


def build(
    num_clients: int,
    topology: Literal["ring", "group-ring", "bipartite", "complete"] = "ring",
    groups: int = 4,
    neighbours: int = 2,
    mix: Literal["after", "before"] = "after",
    clients_rate: float = 0.1,
) -> CooperationModel:
    """`topology`: who is linked with whom; group-ring: joined rings. `groups`: how many rings. `neighbours`:
    links on the ring. `mix`: after local training, or before. `clients_rate`: of their steps, from the settings."""
    if min(groups, neighbours) < 1:
        raise InputError(f"{groups=}, {neighbours=}: expected at least 1 each")
    if mix == "before" and clients_rate <= 0:
        raise InputError("mix=before is a step of plain SGD, expected one with a rate; take sgd without momentum")
    prior = Dirac(metropolis(adjacency(num_clients, topology, groups, neighbours)))
    return CooperationModel(prior, Ignored(), MixModels() if mix == "after" else Pull(1 / clients_rate))
