"""FedEM: every client's data are a mixture of G common distributions, with a network for each (Marfoq et al., 2021).

    z_in ~ Categorical(pi_i) over G components, seats without data,  y_in ~ p(y | x_in, theta_{z_in}),  Y_i = pi_i
    r_inc = q(z_in = c) ~ pi_ic p(y_in | x_in, theta_c),  pi_ic <- 1/n_i sum_n r_inc
    theta_ic from theta_c by local training on sum_n r_inc l_in(theta_ic),  theta_c <- sum_i n_i / n theta_ic
    prediction: sum_c pi_ic p(y | x, theta_c)

A round here ends where the paper's begins: with r and pi, found at the components that the next round trains. So clients
look once before they first train, at components that start at random, each elsewhere. Every client trains a copy of each
component: G times the computation and the traffic of FedAvg. Copies have no momentum from round to round, but one a client.
"""

import pyro
import torch
from pyro import poutine
from torch import Tensor

from scool_ppl import CooperationModel, Evidence, GraphPrior, InputError, NaturalGradient, OneHot
from scool_ppl.look import Components, Ignored
from scool_ppl.mix import CopyComponents


class Sources(GraphPrior):
    """Every image comes from one component; pi is learned by maximum likelihood, and is the graph."""

    includes_self = True
    kind = "point"
    needs = ("every_image_loss",)
    client_axes = {"pi": (0,)}
    accumulates = True  # a round is one step of EM

    def __init__(self, num_clients: int, components: int) -> None:
        super().__init__(num_clients)
        self.register_buffer("pi", torch.full((num_clients, components), 1 / components).double())

    def model(self, evidence: Evidence) -> Tensor:
        losses = evidence.every_image_loss.double().sum(-1).permute(2, 0, 1)  # (n, K, G)
        there = ~losses.isnan().any(2)
        with pyro.plate("images", len(losses), dim=-2), self.clients, poutine.mask(mask=there):
            source = pyro.sample("source", OneHot(self.pi))
            pyro.factor("labels", -(source * losses.nan_to_num(0, 1e6)).sum(-1))
        with self.edges:
            return pyro.sample("Y", pyro.distributions.Delta(self.pi), obs=self.pi)

    def closed_form(self, moments: dict[str, Tensor], evidence: Evidence) -> dict[str, Tensor]:
        there = (~evidence.every_image_loss.sum(-1).isnan().any(1)).double()  # (K, n)
        mean = torch.einsum("kn,nkg->kg", there, moments["source"]) / there.sum(1, keepdim=True).clamp(min=1)
        return {"pi": torch.where(there.any(1, keepdim=True), mean, self.pi)}


def build(num_clients: int, components: int = 3, samples: Tensor | None = None) -> CooperationModel:
    """`components`: G, how many distributions (printed). `samples`: images n_i (K,), from the federation."""
    if components < 1:
        raise InputError(f"fedem has components={components}, expected at least 1")
    prior, mixing = Sources(num_clients, components), CopyComponents(samples=samples)
    return CooperationModel(prior, Ignored(), mixing, Components(), NaturalGradient(sweeps=1), components)
