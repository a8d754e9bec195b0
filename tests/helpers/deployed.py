"""What a client deploys who deploys its network alone."""

from __future__ import annotations

import torch

from scool_ppl.deploy.blueprint import Blueprint, client_network
from scool_ppl.deploy.network import ClientNetwork
from scool_ppl.em.state import Deployment
from scool_ppl.train.clients import Clients
from scool_ppl.train.questions import Ensemble, Params, Predictor
from tests.helpers.tasks import shifted


def alone(params: Params) -> Deployment:
    """Each client its own network."""
    count = len(next(iter(params.values())))
    return Deployment(("mixed",), Ensemble((Predictor(params),), torch.ones(count, 1)))


def one(whose: Clients, place: int = 0, params: Params | None = None) -> tuple[ClientNetwork, Params]:
    """What a client deploys who deploys its network alone."""
    if params is None:
        start = whose.init(0)
        params = {name: value.to(start[name]) for name, value in shifted(start).items()}
    return client_network(alone(params), Blueprint.of(whose), whose.names[place]), params
