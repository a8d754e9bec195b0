"""IFCA: a network for each of G clusters, and each client in the cluster whose network suits it best (Ghosh et al., 2020).

    z_i = argmin_c F_i(theta_c^t),  Y_i the one-hot row of z_i over G components, seats without data
    theta_i from theta_{z_i}^t by local training,  theta_c <- sum_{i: z_i = c} theta_i / |{i: z_i = c}|

Cases 1.1 and 2.2 with P(Y_ic = 1 | theta) ~ exp(-F_i(theta_c) / T), T -> 0. Model averaging, the paper's option II. A round
here ends where the paper's begins, with the choice: clients look once before they first train, at components that start at
random, each elsewhere, and then at the end of every round. F_i is the mean loss on a client's training images, of at most
probe_size of them.
"""

import pyro
import pyro.distributions as dist
import torch

from scool_ppl import CooperationModel, Evidence, GraphPrior, InputError
from scool_ppl.look import Components, Ignored
from scool_ppl.mix import ServeComponents


class Lowest(GraphPrior):
    """Y_i is one-hot at the component with the lowest loss on client i's data, the first of several, Dirac."""

    includes_self = True
    kind = "rows"
    needs = ("loss_received",)

    def model(self, evidence: Evidence) -> torch.Tensor:
        loss = evidence.loss_received.double().masked_fill(~evidence.peers.mask, torch.inf).nan_to_num(torch.inf)
        rows = torch.zeros_like(loss).scatter(1, loss.argmin(1, keepdim=True), 1.0)
        with self.edges:
            return pyro.sample("Y", dist.Delta(rows), obs=rows)


def build(num_clients: int, components: int = 5) -> CooperationModel:
    """`components`: G, how many clusters."""
    if components < 1:
        raise InputError(f"ifca has components={components}, expected at least 1")
    return CooperationModel(
        Lowest(num_clients), Ignored(), ServeComponents(), peers=Components(), components=components
    )
