"""Recipes: which client gets which images, chosen by their labels, and the true groups where there are any.

A recipe is one function ``recipe(pool, *, clients, train, validation, test, ...) -> Partition`` in `RECIPES`. All share
clients: how many; train: images per client for training and validation together (None: as many as the pool gives);
validation: the fraction of them kept for validation; test: how many held-out images are used (None: all of them).
`finish.finished` says in which order clients then come.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from scool_ppl.data.recipes.splitting import (
    Partition,
    Pool,
    as_trained,
    check_request,
    deal,
    equal_share,
    partitioned,
    rounded,
    shares,
)
from scool_ppl.errors import InputError


def iid(
    pool: Pool,
    *,
    clients: int = 20,
    train: int | None = None,
    sizes: str | None = None,
    validation: float = 0.2,
    test: int | None = None,
) -> Partition:
    """Every client draws from the same pool, without replacement; they are one group.

    sizes: instead of `train`, the fewest and the most images of a client, e.g. 10-500; log-uniform between them.
    """
    check_request(pool, clients, train, validation, test)
    dealt = shares("iid", pool, clients, train, sizes)
    return partitioned(pool, dealt, validation, test, groups=(0,) * clients)


def dirichlet(
    pool: Pool,
    *,
    clients: int = 20,
    alpha: float = 0.1,
    minimum: int = 10,
    train: int | None = None,
    validation: float = 0.2,
    test: int | None = None,
    tested: Literal["balanced", "as-trained"] = "balanced",
) -> Partition:
    """Label shares p_i ~ Dirichlet(alpha, ..., alpha); client i asks for train * p_i[c] images of class c.

    A class that is asked for more often than it has images gives every client the same fraction of what it asked, so
    clients may have fewer than `train` images, never fewer than `minimum` (bounded retries).

    tested: on which held-out images of the classes that it has a client is tested. balanced: on all of them, a class
    counts as much as any other. as-trained: on as many as have the label shares of its own images, see `as_trained`;
    its scarcest class says how many these are.
    """
    check_request(pool, clients, train, validation, test)
    if not (math.isfinite(alpha) and alpha > 0):
        raise InputError(f"dirichlet has alpha={alpha}, expected a finite number above 0")
    size = equal_share("dirichlet", len(pool.train_labels), clients, train)
    if not 1 <= minimum <= size:
        raise InputError(f"dirichlet has minimum={minimum}, expected 1 to {size}, the images per client; lower minimum")
    stock = torch.bincount(pool.train_labels, minlength=pool.num_classes)
    smallest = 0
    for _ in range(100):
        concentration = torch.full((clients, pool.num_classes), alpha, dtype=torch.float64)
        # The public Dirichlet takes no generator and would move the user's global one.
        wanted = torch._sample_dirichlet(concentration, pool.generator)
        asked = rounded(size * wanted)
        counts = torch.minimum(asked, asked * stock // asked.sum(0).clamp(min=1))
        smallest = max(smallest, int(counts.sum(1).min()))
        if smallest >= minimum:
            made = partitioned(pool, deal(pool, counts), validation, test, own_classes=True)
            return made if tested == "balanced" else as_trained("dirichlet", pool, made)
    raise InputError(
        f"dirichlet with alpha={alpha} left a client with at most {smallest} of {size} images in 100 draws, expected "
        f"minimum={minimum}; {f'use minimum={smallest}, ' if smallest else ''}raise alpha, or lower clients or train"
    )


def pathological(
    pool: Pool,
    *,
    clients: int = 20,
    classes: int = 2,
    train: int | None = None,
    validation: float = 0.2,
    test: int | None = None,
) -> Partition:
    """`classes` distinct classes per client: rows of shards, one of each class, shuffled and cut in runs (L2C, Fig. 2).

    With P shards of each of M classes and N classes per client there are K = M P / N clients. A client is tested on the
    held-out images of its classes. truth: who has the same classes, often nobody (SCooL, 5.2).
    """
    check_request(pool, clients, train, validation, test)
    total = pool.num_classes
    if classes < 1 or total % classes:
        fitting = [n for n in range(1, total + 1) if total % n == 0]
        raise InputError(f"pathological has classes={classes}, expected a divisor of {total} classes: one of {fitting}")
    runs = total // classes
    if clients % runs:
        raise InputError(
            f"pathological has clients={clients}, expected a multiple of {runs} ({total} classes, {classes} a client); "
            f"use clients={math.ceil(clients / runs) * runs}"
        )
    shards = clients // runs
    shard_sizes = _shard_sizes(pool, shards, classes, train)
    owned = torch.stack([torch.randperm(total, generator=pool.generator) for _ in range(shards)]).view(clients, classes)
    taken = shard_sizes[owned]
    if train is not None:
        taken = (train // classes + (torch.arange(classes) < train % classes)).expand(clients, classes)
    counts = torch.zeros(clients, total, dtype=torch.long).scatter(1, owned, taken)
    ordered = owned.sort(dim=1).values
    truth = (ordered[:, None] == ordered).all(-1).float().fill_diagonal_(0)
    return partitioned(pool, deal(pool, counts), validation, test, own_classes=True)._replace(truth=truth)


def _shard_sizes(pool: Pool, shards: int, classes: int, train: int | None) -> Tensor:
    """Images in each of the equal shards that a class is cut into, (C,); enough of them for `train` a client."""
    stock = torch.bincount(pool.train_labels, minlength=pool.num_classes)
    shard_sizes = stock // shards
    available = int(shard_sizes.min())
    if available == 0:
        fewest = int(stock.min())
        raise InputError(
            f"pathological needs {shards} shards of every class, class {int(stock.argmin())} has {fewest} images; "
            + (f"use clients={fewest * pool.num_classes // classes}" if fewest else "use data that has every class")
        )
    wanted = 1 if train is None else math.ceil(train / classes)
    if wanted > available or (train is not None and train < classes):
        raise InputError(
            f"pathological needs {shards} shards of {wanted} images of every class and at least one image a class, the "
            f"pool gives shards of {available}; use train from {classes} to {available * classes}, or lower clients"
        )
    return shard_sizes
