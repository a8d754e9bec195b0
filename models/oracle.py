"""Oracle: cooperation along the true graph, which no method knows. The ceiling for methods that infer it.

Y_ij = 1 where i and j have the same task, rows normalised with the client itself       a Dirac prior
theta_i <- theta_i + sum_j Y_ij (what local training did to theta_j)
"""

import torch

from scool_ppl import CooperationModel, InputError
from scool_ppl.infer.priors import Dirac
from scool_ppl.look import Ignored
from scool_ppl.mix import MixUpdates


def build(
    num_clients: int, truth: torch.Tensor, weigh: bool = False, samples: torch.Tensor | None = None
) -> CooperationModel:
    """`truth`: the true graph (K, K), supplied by the federation where it has one. `weigh`: weights are proportional to
    n_j, too, the training images of each client, `samples` (K,), which the federation supplies: FedAvg in each group.
    """
    if weigh and samples is None:
        raise InputError("oracle has weigh=True and no samples; pass federation= or samples= to load_model")
    graph = truth.double() + torch.eye(num_clients, dtype=torch.float64)
    mixing = MixUpdates(samples=samples if weigh else None)
    return CooperationModel(Dirac(graph / graph.sum(1, keepdim=True)), Ignored(), mixing)
