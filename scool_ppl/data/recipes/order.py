"""In which order clients are listed, and what is known of where they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from scool_ppl.base.randomness import generator
from scool_ppl.errors import InputError

if TYPE_CHECKING:
    from scool_ppl.data.federation import Federation


def ordered(
    federation: Federation, seed: int, *, order: Literal["drawn", "listed"] = "drawn", wrong: float | None = None
) -> Federation:
    """Any recipe's clients, each with its name and data, in an order drawn from the seed or as they are listed.

    order: listed is group by group in most recipes, so that whoever looks at positions (a ring) is told the groups.
    wrong: each client is known to be in a region, that of its group, but for this share of clients, drawn, who are in a
    region of another group.
    """
    if order == "drawn":
        places = torch.randperm(federation.num_clients, generator=generator(seed, "order of the clients"))
        federation = replace(federation.select(places.tolist()), spec=federation.spec)
    if wrong is None:
        return federation
    if federation.groups is None or len(set(federation.groups)) == 1:
        raise InputError(f"wrong={wrong} asks for regions, which are groups, expected two or more; leave wrong out")
    if not 0 <= wrong <= 1:
        raise InputError(f"wrong={wrong}, expected the share of clients in a wrong region, 0 to 1")
    found = regions(torch.tensor(federation.groups), wrong, generator(seed, "regions"))
    return replace(federation, regions=tuple(found.tolist()))


def regions(groups: Tensor, wrong: float, random: torch.Generator) -> Tensor:
    """The groups (K,), but for round(wrong K) clients another group than their own, each equally likely."""
    known, group = groups.unique(return_inverse=True)
    chosen = torch.randperm(len(group), generator=random)[: round(wrong * len(group))]
    steps = torch.randint(1, len(known), (len(chosen),), generator=random)
    return known[group.index_put((chosen,), (group[chosen] + steps) % len(known))]
