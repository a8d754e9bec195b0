"""A federation so small that everything about it can be computed by plain loops, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scool_ppl.data.federation import Federation
from scool_ppl.deploy import Portfolio
from scool_ppl.em.em import EM
from scool_ppl.em.model import CooperationModel, Schedule
from scool_ppl.em.state import EMState
from scool_ppl.infer.estep.natural import NaturalGradient
from scool_ppl.infer.estep.svi import SVIStep
from scool_ppl.train.clients import Clients
from scool_ppl.train.networks import MLP
from scool_ppl.train.questions import Params

RATE = 0.1
FEATURES, CLASSES = 4, 3
ONE_STEP = Schedule(local_steps=1)

Network = dict[str, Tensor]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def federation(num_clients: int = 4, sizes: Sequence[tuple[int, int, int]] | None = None) -> Federation:
    """Clients with 6, 7, 8, ... training, 5 validation and 4 test images of noise, or `sizes`; labels are noise too."""
    sizes = [(6 + client, 5, 4) for client in range(num_clients)] if sizes is None else sizes
    owner = torch.cat([torch.full((sum(size),), client) for client, size in enumerate(sizes)])
    split = torch.cat([torch.arange(3).repeat_interleave(torch.tensor(size)) for size in sizes])
    targets = torch.randint(CLASSES, (len(owner),), generator=torch.Generator().manual_seed(2))
    return Federation.from_arrays(
        normal(len(owner), FEATURES, seed=1), targets, owner, split=split, num_classes=CLASSES
    )


def clients(num_clients: int = 4, hidden: int = 3, **options: Any) -> Clients:
    """SGD on all training images at once: one step is one gradient step on L(D_i; theta_i)."""
    defaults: dict[str, Any] = {
        "optimizer": partial(torch.optim.SGD, lr=RATE),
        "batch_size": 64,
        "executor": "stacked",
        "dtype": torch.float64,
    }
    return Clients(federation(num_clients), partial(MLP, FEATURES, CLASSES, (hidden,)), **{**defaults, **options})


def driver(model: CooperationModel, whose: Clients, schedule: Schedule = ONE_STEP, seed: int = 0) -> tuple[EM, EMState]:
    """An EM and a state before the first round in which all networks differ."""
    em = EM(model, whose, schedule, seed=seed)
    return em, em.init()._replace(params=networks(whose))


def brief(model: CooperationModel | Portfolio) -> CooperationModel | Portfolio:
    """The same model, or all of a portfolio, with short E-steps, for tests of what holds wherever these end."""
    if isinstance(model, Portfolio):
        return model.with_each(brief)
    short = {NaturalGradient: {"sweeps": 2, "blocks": 2}, SVIStep: {"steps": 10, "num_samples": 5}}
    return model._replace(e_step=replace(model.e_step, **short.get(type(model.e_step), {})))


def networks(whose: Clients, seed: int = 20, scale: float = 0.7) -> Params:
    """theta^t: every client somewhere else."""
    shapes = whose.init(0)
    return {name: scale * normal(*value.shape, seed=seed + place) for place, (name, value) in enumerate(shapes.items())}


def one(params: Params, client: int) -> Network:
    return {name: value[client] for name, value in params.items()}


def outputs(network: Network, x: Tensor) -> Tensor:
    """The MLP written out."""
    hidden = (x @ network["1.weight"].T + network["1.bias"]).clamp(min=0)
    return hidden @ network["3.weight"].T + network["3.bias"]


def data(whose: Clients, client: int, split: str = "train") -> tuple[Tensor, Tensor]:
    rows = getattr(whose.federation, split)[client]
    return whose.federation.inputs[rows].double(), whose.federation.labels(client, rows)


def loss(network: Network, whose: Clients, client: int, split: str = "train") -> Tensor:
    """L(D_i; theta), the mean cross-entropy."""
    x, y = data(whose, client, split)
    logits = outputs(network, x)
    return (logits.exp().sum(1).log() - logits[torch.arange(len(y)), y]).mean()


def gradient(network: Network, whose: Clients, client: int, split: str = "train") -> Network:
    """grad L(D_i; theta) by autograd."""
    leaves = {name: value.detach().clone().requires_grad_() for name, value in network.items()}
    values = torch.autograd.grad(loss(leaves, whose, client, split), list(leaves.values()))
    return dict(zip(leaves, values, strict=True))


def close(found: Tensor, expected: Tensor, atol: float = 1e-10) -> None:
    torch.testing.assert_close(found.detach(), expected.detach().to(found), rtol=0, atol=atol)


def close_networks(found: Params, client: int, expected: Network, atol: float = 1e-10) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        close(found[name][client], value, atol)


def distance(one: Network, other: Network, norm: float = 2.0) -> Tensor:
    gaps = torch.cat([(one[name] - other[name]).flatten() for name in one]).abs()
    return gaps.pow(norm).sum().pow(1 / norm)
