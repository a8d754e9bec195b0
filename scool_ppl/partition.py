"""Recipes: which client gets which images, chosen by their labels, and the true groups where there are any (MATH 8).

A recipe is one function ``recipe(pool, *, clients, train, validation, test, ...) -> Partition`` in `RECIPES`. All share
clients: how many; train: images per client for training and validation together (None: as many as the pool gives);
validation: the fraction of them kept for validation; test: how many held-out images are used (None: all of them).
Members of a group are neighbours: client i of K is in group floor(i G / K).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scool_ppl.errors import InputError


class Pool(NamedTuple):
    """What a recipe divides: labels of the training pool (N,) and of the held-out images (T,), and its randomness."""

    train_labels: Tensor
    test_labels: Tensor
    num_classes: int
    generator: torch.Generator


class Partition(NamedTuple):
    """One index list per client and split; train and validation index the training pool, test the held-out images.

    relabel: (K, C) long, client i calls class c relabel[i, c]; groups: the true group of each client.
    """

    train: tuple[Tensor, ...]
    validation: tuple[Tensor, ...]
    test: tuple[Tensor, ...]
    relabel: Tensor | None = None
    groups: tuple[int, ...] | None = None


def stratified(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` positions whose label shares are those of `labels` to within one image per class, in ascending order."""
    order = torch.randperm(len(labels), generator=generator)
    order = order[labels[order].argsort(stable=True)]
    picked = torch.arange(count) * len(labels) // max(count, 1)
    return order[picked].sort().values


def iid(
    pool: Pool, *, clients: int = 20, train: int | None = None, validation: float = 0.2, test: int | None = None
) -> Partition:
    """Every client draws from the same pool, without replacement; they are one group."""
    _check(pool, clients, train, validation, test)
    share = _equal_share("iid", len(pool.train_labels), clients, train)
    dealt = _shuffled(pool)[: clients * share].split(share)
    return _partition(pool, dealt, validation, test, groups=(0,) * clients)


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
    _check(pool, clients, train, validation, test)
    if not (math.isfinite(alpha) and alpha > 0):
        raise InputError(f"dirichlet has alpha={alpha}, expected a finite number above 0")
    size = _equal_share("dirichlet", len(pool.train_labels), clients, train)
    if not 1 <= minimum <= size:
        raise InputError(f"dirichlet has minimum={minimum}, expected 1 to {size}, the images per client; lower minimum")
    stock = torch.bincount(pool.train_labels, minlength=pool.num_classes)
    smallest = 0
    for _ in range(100):
        concentration = torch.full((clients, pool.num_classes), alpha, dtype=torch.float64)
        # The public Dirichlet takes no generator and would move the user's global one.
        shares = torch._sample_dirichlet(concentration, pool.generator)
        asked = _whole(size * shares)
        counts = torch.minimum(asked, asked * stock // asked.sum(0).clamp(min=1))
        smallest = max(smallest, int(counts.sum(1).min()))
        if smallest >= minimum:
            return _partition(pool, _deal(pool, counts), validation, test, own_classes=True)
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
    _check(pool, clients, train, validation, test)
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
    return _partition(pool, _deal(pool, counts), validation, test, own_classes=True)


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
    _check(pool, clients, train, validation, test)
    member = _membership("groups", clients, groups)
    if classes < 1 or groups * classes > pool.num_classes:
        raise InputError(
            f"groups needs groups x classes = {groups} x {classes} different classes, the data has {pool.num_classes}; "
            "lower groups or classes"
        )
    owned = torch.randperm(pool.num_classes, generator=pool.generator)[: groups * classes].view(groups, classes)
    order, dealt = _shuffled(pool), list[Tensor]()
    for group in range(groups):
        rows = order[torch.isin(pool.train_labels[order], owned[group])]
        members = member.count(group)
        share = _equal_share(f"group {group} of groups", len(rows), members, train)
        dealt += rows[: members * share].split(share)
    classes_of = [tuple(owned[group].tolist()) for group in member]
    return _partition(pool, dealt, validation, test, classes_of=classes_of, groups=member)


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
    _check(pool, clients, train, validation, test)
    member = _membership("permuted", clients, groups)
    if not 0 <= ragged < 1:
        raise InputError(f"permuted has ragged={ragged}, expected a fraction from 0 to below 1")
    flip = pool.num_classes if flip is None else flip
    relabel = _relabellings(groups, pool.num_classes, flip, pool.generator)[list(member)]
    available = len(pool.train_labels)
    size = train
    if size is None:
        size = int(_equal_share("permuted", available, clients, None) / (1 + ragged))
    low, high = max(1, math.ceil(size * (1 - ragged))), max(1, math.floor(size * (1 + ragged)))
    sizes = torch.randint(low, high + 1, (clients,), generator=pool.generator)
    if int(sizes.sum()) > available:
        # Only now, so that a ragged draw that fits by luck is not refused.
        _equal_share("permuted", available, clients, math.ceil(int(sizes.sum()) / clients))
    dealt = _shuffled(pool)[: int(sizes.sum())].split(sizes.tolist())
    return _partition(pool, dealt, validation, test, relabel=relabel, groups=member)


RECIPES: dict[str, Callable[..., Partition]] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "pathological": pathological,
    "groups": grouped,
    "permuted": permuted,
}


def _check(pool: Pool, clients: int, train: int | None, validation: float, test: int | None) -> None:
    """Refuse values that no recipe can use."""
    if clients < 1:
        raise InputError(f"clients={clients}, expected at least 1")
    if train is not None and train < 1:
        raise InputError(f"train={train}, expected at least 1 image per client, or none for all that the pool gives")
    if not 0 <= validation < 1:
        raise InputError(f"validation={validation}, expected a fraction from 0 to below 1")
    held_out = len(pool.test_labels)
    if test is not None and not 1 <= test <= held_out:
        raise InputError(f"test={test}, expected 1 to {held_out}: the data has {held_out} held-out images")


def _equal_share(what: str, available: int, clients: int, train: int | None) -> int:
    """Images per client, `train` of them or an equal share of all."""
    fitting = available // clients
    share = max(1, fitting) if train is None else train
    if clients * share > available:
        remedy = f"lower train (train={fitting} fits) or clients" if fitting else "lower clients"
        raise InputError(
            f"{what} needs {clients} x {share} = {clients * share} images, the pool has {available}; {remedy}"
        )
    return share


def _membership(what: str, clients: int, groups: int) -> tuple[int, ...]:
    """Contiguous groups whose sizes differ by at most one client."""
    if not 1 <= groups <= clients:
        raise InputError(f"{what} has groups={groups}, expected 1 to {clients}, the number of clients")
    return tuple(client * groups // clients for client in range(clients))


def _shuffled(pool: Pool) -> Tensor:
    return torch.randperm(len(pool.train_labels), generator=pool.generator)


def _whole(amounts: Tensor) -> Tensor:
    """Rows rounded to whole numbers with the row sums kept, by largest remainder. amounts: (K, C)."""
    floors = amounts.floor()
    missing = amounts.sum(1).round() - floors.sum(1)
    rank = (floors - amounts).argsort(dim=1, stable=True).argsort(dim=1)
    return (floors + (rank < missing[:, None])).long()


def _deal(pool: Pool, counts: Tensor) -> tuple[Tensor, ...]:
    """Disjoint random images, counts[i, c] of class c for client i. counts: (K, C)."""
    clients, order = torch.arange(counts.shape[0]), _shuffled(pool)
    picked, owners = [], []
    for label in range(counts.shape[1]):
        owner = clients.repeat_interleave(counts[:, label])
        picked.append(order[pool.train_labels[order] == label][: len(owner)])
        owners.append(owner)
    by_owner = torch.cat(owners).argsort(stable=True)
    return torch.cat(picked)[by_owner].split(counts.sum(1).tolist())


def _relabellings(groups: int, num_classes: int, flip: int, generator: torch.Generator) -> Tensor:
    """(G, C) distinct permutations of the labels, each moving the same `flip` labels and no other."""
    if not 0 <= flip <= num_classes:
        raise InputError(f"permuted has flip={flip}, expected 0 to {num_classes}, the number of classes")
    # The number of permutations of n things that leave none in place is n!/e, rounded; of nothing there is one.
    available = round(math.factorial(flip) / math.e) if flip else 1
    if groups > available:
        raise InputError(
            f"permuted needs {groups} different ways to exchange {flip} labels, there are {available}; "
            "raise flip or lower groups"
        )
    flipped = torch.randperm(num_classes, generator=generator)[:flip].sort().values
    chosen: list[list[int]] = []
    while len(chosen) < groups:
        labels = torch.arange(num_classes)
        labels[flipped] = flipped[torch.randperm(flip, generator=generator)]
        if int((labels[flipped] == flipped).sum()) == 0 and labels.tolist() not in chosen:
            chosen.append(labels.tolist())
    return torch.tensor(chosen)


def _partition(
    pool: Pool,
    dealt: Sequence[Tensor],
    validation: float,
    test: int | None,
    *,
    own_classes: bool = False,
    classes_of: Sequence[tuple[int, ...]] | None = None,
    relabel: Tensor | None = None,
    groups: tuple[int, ...] | None = None,
) -> Partition:
    """Keep a random part of every client's images for validation and give it its held-out images."""
    held_out = torch.arange(len(pool.test_labels))
    if test is not None:
        held_out = stratified(pool.test_labels, test, pool.generator)
    if own_classes:
        classes_of = [tuple(pool.train_labels[rows].unique().tolist()) for rows in dealt]
    tests: list[Tensor] = [held_out] * len(dealt)
    if classes_of is not None:
        # One list per set of classes, not per client: with many clients the copies would outweigh the images.
        shared = {
            classes: held_out[torch.isin(pool.test_labels[held_out], torch.tensor(classes))]
            for classes in dict.fromkeys(classes_of)
        }
        tests = [shared[classes] for classes in classes_of]
    for client, rows in enumerate(tests):
        if len(rows) == 0:
            raise InputError(f"client {client} has no held-out image of its classes; raise test or classes")
    mixed = [rows[torch.randperm(len(rows), generator=pool.generator)] for rows in dealt]
    kept = [min(round(validation * len(rows)), len(rows) - 1) for rows in mixed]
    return Partition(
        train=tuple(rows[count:].sort().values for rows, count in zip(mixed, kept, strict=True)),
        validation=tuple(rows[:count].sort().values for rows, count in zip(mixed, kept, strict=True)),
        test=tuple(tests),
        relabel=relabel,
        groups=groups,
    )
