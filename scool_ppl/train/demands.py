"""Demands: what a model may ask of clients beyond rounds of training on their own data; not all clients can do it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from scool_ppl.errors import InputError, unknown

Demand = Literal["lock step", "others' data", "mixtures", "components", "gradients", "all networks", "several networks"]

MEANING: dict[Demand, str] = {
    "lock step": "is pulled towards others' networks at every step of training",
    "others' data": "trains on others' data at every step",
    "mixtures": "predicts with mixtures of others' networks",
    "components": "has components, networks that belong to no client",
    "gradients": "looks at gradients of clients' losses",
    "all networks": "reads the networks of all clients at once",
    "several networks": "trains several networks on each client's images",
}
"""What a model does that demands this."""

ONE_PRIVATE_PART = "and a client has one private part; declare nothing private"
"""Why clients whose networks have private parts refuse several networks."""

WEIGHED = "each image weighed by its losses, for which private training does not account; train without noise"
"""Why private clients refuse them."""


def check_demands(refused: Mapping[Demand, str], demands: Collection[str]) -> None:
    """Raises InputError where clients refuse one of them; refused: demand -> why, and what to do, see `AnyClients`."""
    for name in demands:
        if name not in MEANING:
            raise unknown("demand", name, MEANING)
    for demand in MEANING:
        if demand in refused and demand in demands:
            raise InputError(f"this model {MEANING[demand]}, {refused[demand]}, or choose another model")
