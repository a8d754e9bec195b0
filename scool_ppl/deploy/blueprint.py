"""How the clients' networks are built again: the description that a run's folder keeps, and a module for each client."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from scool_ppl.base.files import file_sha256
from scool_ppl.base.randomness import seeded
from scool_ppl.data.preparation import Preparation
from scool_ppl.deploy.network import ClientNetwork, Mixed
from scool_ppl.em.state import Deployment
from scool_ppl.errors import InputError, unknown
from scool_ppl.far.home import SEAL
from scool_ppl.tasks.base import Task
from scool_ppl.tasks.named import plain, task_of, written
from scool_ppl.train.contract import AnyClients, Wrapper
from scool_ppl.train.networks import NetworkSpec, network_for, network_path
from scool_ppl.train.networks.parts import Parts
from scool_ppl.train.questions import Params, Predictor

MakeNetwork = Callable[[], nn.Module]
UNSHIPPED = 1e-6
"""Networks of a mixture whose shares come to less than this together are not shipped."""


class Blueprint(NamedTuple):
    """What it takes to build the clients' networks again, beside their parameters."""

    clients: tuple[str, ...]
    input_shape: tuple[int, ...]
    tokens: bool
    network: NetworkSpec | None
    """None where a function of the user's own builds them."""
    task: str | None
    """As far as predictions depend on it; None where it is a class of the user's own."""
    preparation: Preparation | None
    private: tuple[str, ...] = ()
    """Parameters of which every client has its own in all networks that it uses."""
    frozen: Params = {}  # never changed
    """Parameters that all networks have in common, without a leading dimension."""

    @classmethod
    def of(cls, clients: AnyClients) -> Blueprint:
        """Of clients, or of such inside of others; of clients elsewhere all but the network, unless they know it."""
        roster = clients.roster
        inside = clients
        while isinstance(inside, Wrapper):
            inside = inside.clients
        network = getattr(inside, "network", None)
        task = plain(roster.task)
        return cls(
            clients=tuple(roster.names),
            input_shape=roster.input_shape,
            tokens=roster.tokens,
            network=network if isinstance(network, NetworkSpec) else None,
            task=None if task is None else written(task),
            preparation=roster.preparation,
            private=clients.parts.private,
            frozen={name: value.cpu() for name, value in getattr(inside, "frozen", {}).items()},
        )

    def place(self, client: str) -> int:
        """The row of a client."""
        if client not in self.clients:
            raise unknown("client", client, self.clients)
        return self.clients.index(client)


def client_network(
    deployment: Deployment,
    blueprint: Blueprint,
    client: str,
    *,
    network: MakeNetwork | None = None,
    task: Task | None = None,
) -> ClientNetwork:
    """What this client deploys, of its candidates those on which it relies.

    network, task: what the blueprint does not have, because functions or classes of the user's own were used.
    """
    place, ensemble = blueprint.place(client), deployment.ensemble
    make, task = _maker(blueprint, network), _task(blueprint, task)
    parts = Parts(tuple(blueprint.frozen), blueprint.private)

    def load(networks: Params, sender: int) -> nn.Module:
        own = parts.completed(networks, torch.tensor([sender]), torch.tensor([place]))
        return _loaded(make, {**blueprint.frozen, **{name: value[0] for name, value in own.items()}})

    weights = deployment.weights[place].tolist()
    candidates = {
        name: (weight, _candidate(predictor, place, load, task))
        for name, weight, predictor in zip(deployment.candidates, weights, ensemble.predictors, strict=True)
        if weight > 0
    }
    return ClientNetwork(
        client,
        candidates,
        task,
        input_shape=blueprint.input_shape,
        tokens=blueprint.tokens,
        preparation=None if blueprint.preparation is None else blueprint.preparation.of(client),
        offsets=None if ensemble.offsets is None else ensemble.offsets[place],
    )


def _candidate(predictor: Predictor, place: int, load: Callable[[Params, int], nn.Module], task: Task) -> nn.Module:
    """The network of a client, or the mixture that it predicts with; `load` makes the module of a row."""
    networks, mixture = predictor
    if mixture is None:
        return load(networks, place)
    weights, peers = mixture
    share = weights[place].where(peers.mask[place], 0).double()
    senders = peers.columns().expand_as(weights)[place]
    if float(share.sum()) <= 0:
        return load(networks, place)
    share, order = (share / share.sum()).sort()
    kept = share.cumsum(0) > UNSHIPPED
    each = [load(networks, int(sender)) for sender in senders[order[kept]]]
    return Mixed(each, share[kept].to(next(each[0].parameters()).dtype), task)


def _loaded(make: MakeNetwork, parameters: Params) -> nn.Module:
    """A fresh network with these parameters, all that it has."""
    if SEAL in parameters:
        raise InputError(
            "private parts of the networks stayed at the clients' hosts, expected whole networks; deliver them there"
        )
    with seeded(0, torch.device("cpu")):  # the seed of `examine`: buffers are those of training
        module = make()
    found = {name: tuple(leaf.shape) for name, leaf in module.named_parameters()}
    expected = {name: tuple(value.shape) for name, value in parameters.items()}
    if found != expected:
        wrong = min(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        raise InputError(
            f"the network has a parameter '{wrong}' of shape {found.get(wrong)}, the run's have {expected.get(wrong)}; "
            "give the function that the clients were made with"
        )
    module.to(next(iter(parameters.values())).dtype)
    for name, leaf in module.named_parameters():
        leaf.data = parameters[name].clone()
    return module


def _maker(blueprint: Blueprint, network: MakeNetwork | None) -> MakeNetwork:
    if network is not None:
        return network
    if blueprint.network is None:
        raise InputError(
            "the run's networks are built by a function of your own, which no folder holds; pass it: network=..."
        )
    spec = blueprint.network  # from a file: checked as what users ask for is
    if (path := network_path(spec.name)) is not None and file_sha256(path) != spec.sha256:
        raise InputError(
            f"the network file '{path}' is not what it was when the run ended (SHA-256 {file_sha256(path)[:12]}, expected "
            f"{str(spec.sha256)[:12]}); restore it, or pass what builds the network: network=..."
        )
    return network_for(spec.input_shape, spec.outputs, spec.name, tokens=blueprint.tokens, **spec.options)


def _task(blueprint: Blueprint, task: Task | None) -> Task:
    if task is not None:
        return task
    if blueprint.task is None:
        raise InputError("the run's task is a class of your own, which no folder holds; pass it: task=...")
    return task_of(blueprint.task)
