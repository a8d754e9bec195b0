"""What any recipe's clients may have besides: images in common, an order, and regions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from scool_ppl.base.randomness import generator
from scool_ppl.errors import InputError

if TYPE_CHECKING:
    from scool_ppl.data.federation import Federation


def finished(
    federation: Federation,
    seed: int,
    *,
    order: Literal["drawn", "listed"] = "drawn",
    wrong: float | None = None,
    common: float | None = None,
) -> Federation:
    """Any recipe's clients, each with its name and data.

    order: drawn from the seed, or as they are listed, which is group by group in most recipes, so that whoever looks at
    positions (a ring) is told the groups.
    common: this share of every client's training images, drawn, is given to all others, who train on copies of them.
    wrong: each client is known to be in a region, that of its group, but for this share of clients, drawn, who are in a
    region of another group.
    """
    if common is not None:
        federation = with_common(federation, common, seed)
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


def with_common(federation: Federation, share: float, seed: int) -> Federation:
    """Everybody trains on a share of everybody's images, at least one each, called what their owners call them.

    Evidence that takes a client's training images as held out from all others, as `blocks` does, is then no more so.
    """
    if not 0 < share <= 1:
        raise InputError(f"common={share}, expected the share of their images that clients give to all, above 0 to 1")
    given = [
        rows[torch.randperm(len(rows), generator=generator(seed, "common images", name))][
            : max(1, round(share * len(rows)))
        ]
        for name, rows in zip(federation.names, federation.train, strict=True)
    ]
    rows = torch.cat(given)
    owner = torch.repeat_interleave(torch.tensor([len(own) for own in given]))
    copied = torch.cat([rows[owner != client] for client in range(federation.num_clients)])
    sizes = [int((owner != client).sum()) for client in range(federation.num_clients)]
    places = (torch.arange(len(copied)) + len(federation.inputs)).split(sizes)
    targets = federation.targets[copied]
    if federation.relabel is not None:
        owners = torch.cat([owner[owner != client] for client in range(federation.num_clients)])
        receiver = torch.repeat_interleave(torch.tensor(sizes))
        targets = federation.relabel.argsort(1)[receiver, federation.relabel[owners, targets]]
    return replace(
        federation,
        inputs=torch.cat([federation.inputs, federation.inputs[copied]]),
        targets=torch.cat([federation.targets, targets]),
        train=tuple(torch.cat(each) for each in zip(federation.train, places, strict=True)),
    )
