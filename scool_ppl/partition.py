"""Recipes: which client gets which images, chosen by their labels, and the true groups where there are any.

A recipe is one function ``recipe(pool, *, clients, train, validation, test, ...) -> Partition`` in `RECIPES`. All share
clients: how many; train: images per client for training and validation together (None: as many as the pool gives);
validation: the fraction of them kept for validation; test: how many held-out images are used (None: all of them).
Members of a group are neighbours: client i of K is in group floor(i G / K).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from scool_ppl.dealing import (
    Partition,
    Pool,
    check_request,
    deal,
    equal_share,
    membership,
    mixed_rows,
    partitioned,
    relabellings,
    whole,
)
from scool_ppl.errors import InputError


def iid(
    pool: Pool, *, clients: int = 20, train: int | None = None, validation: float = 0.2, test: int | None = None
) -> Partition:
    """Every client draws from the same pool, without replacement; they are one group."""
    check_request(pool, clients, train, validation, test)
    share = equal_share("iid", len(pool.train_labels), clients, train)
    dealt = mixed_rows(pool)[: clients * share].split(share)
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
) -> Partition:
    """Label shares p_i ~ Dirichlet(alpha, ..., alpha); client i asks for train * p_i[c] images of class c.

    A class that is asked for more often than it has images gives every client the same fraction of what it asked, so
    clients may have fewer than `train` images, never fewer than `minimum` (bounded retries). A client is tested on all
    held-out images of the classes that it has.
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
        shares = torch._sample_dirichlet(concentration, pool.generator)
        asked = whole(size * shares)
        counts = torch.minimum(asked, asked * stock // asked.sum(0).clamp(min=1))
        smallest = max(smallest, int(counts.sum(1).min()))
        if smallest >= minimum:
            return partitioned(pool, deal(pool, counts), validation, test, own_classes=True)
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
    held-out images of its classes.
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
    shard_sizes = torch.bincount(pool.train_labels, minlength=total) // shards
    available = int(shard_sizes.min())
    wanted = 1 if train is None else math.ceil(train / classes)
    if wanted > available or (train is not None and train < classes):
        raise InputError(
            f"pathological needs {shards} shards of {wanted} images of every class and at least one image a class, the "
            f"pool gives shards of {available}; use train from {classes} to {available * classes}, or lower clients"
        )
    owned = torch.stack([torch.randperm(total, generator=pool.generator) for _ in range(shards)]).view(clients, classes)
    taken = shard_sizes[owned]
    if train is not None:
        taken = (train // classes + (torch.arange(classes) < train % classes)).expand(clients, classes)
    counts = torch.zeros(clients, total, dtype=torch.long).scatter(1, owned, taken)
    return partitioned(pool, deal(pool, counts), validation, test, own_classes=True)


def grouped(
    pool: Pool,
    *,
    clients: int = 20,
    groups: int = 5,
    classes: int = 2,
    train: int | None = None,
    validation: float = 0.2,
    test: int | None = None,
) -> Partition:
    """Groups own disjoint sets of `classes` classes; a group's images, training and held-out, are those of its classes.

    The training images are split inside the group.
    """
    check_request(pool, clients, train, validation, test)
    member = membership("groups", clients, groups)
    if classes < 1 or groups * classes > pool.num_classes:
        raise InputError(
            f"groups needs groups x classes = {groups} x {classes} different classes, the data has {pool.num_classes}; "
            "lower groups or classes"
        )
    owned = torch.randperm(pool.num_classes, generator=pool.generator)[: groups * classes].view(groups, classes)
    order, dealt = mixed_rows(pool), list[Tensor]()
    for group in range(groups):
        rows = order[torch.isin(pool.train_labels[order], owned[group])]
        members = member.count(group)
        share = equal_share(f"group {group} of groups", len(rows), members, train)
        dealt += rows[: members * share].split(share)
    classes_of = [tuple(owned[group].tolist()) for group in member]
    return partitioned(pool, dealt, validation, test, classes_of=classes_of, groups=member)


def permuted(
    pool: Pool,
    *,
    clients: int = 20,
    groups: int = 4,
    train: int | None = None,
    validation: float = 0.2,
    test: int | None = None,
    flip: int | None = None,
    ragged: float = 0.0,
) -> Partition:
    """All classes for everyone, but every group calls them by its own permutation of the labels (CoBo, cross-silo).

    flip: how many labels the groups permute, the same ones for all (None: every label); none of these keeps its place.
    ragged: sizes are uniform between (1 - ragged) and (1 + ragged) times `train`.
    """
    check_request(pool, clients, train, validation, test)
    member = membership("permuted", clients, groups)
    if not 0 <= ragged < 1:
        raise InputError(f"permuted has ragged={ragged}, expected a fraction from 0 to below 1")
    flip = pool.num_classes if flip is None else flip
    relabel = relabellings(groups, pool.num_classes, flip, pool.generator)[list(member)]
    available = len(pool.train_labels)
    size = train
    if size is None:
        size = int(equal_share("permuted", available, clients, None) / (1 + ragged))
    low, high = max(1, math.ceil(size * (1 - ragged))), max(1, math.floor(size * (1 + ragged)))
    sizes = torch.randint(low, high + 1, (clients,), generator=pool.generator)
    if int(sizes.sum()) > available:
        # Only now, so that a ragged draw that fits by luck is not refused.
        equal_share("permuted", available, clients, math.ceil(int(sizes.sum()) / clients))
    dealt = mixed_rows(pool)[: int(sizes.sum())].split(sizes.tolist())
    return partitioned(pool, dealt, validation, test, relabel=relabel, groups=member)


RECIPES: dict[str, Callable[..., Partition]] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "pathological": pathological,
    "groups": grouped,
    "permuted": permuted,
}
