"""Recipes whose clients form groups, which differ in their data, in how these are turned, or in the names of labels.

A recipe lists members of a group side by side: client i of K is in group floor(i G / K), but for `disjoint`, whose
groups are of different sizes. The option `order` says in which order they come in the federation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from scool_ppl.data.recipes.clusters import clusters
from scool_ppl.data.recipes.splitting import (
    Partition,
    Pool,
    check_request,
    equal_share,
    exchange,
    membership,
    mixed_rows,
    partitioned,
    relabellings,
    repeated_rows,
    rounded,
    shares,
)
from scool_ppl.errors import InputError


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
    return _by_classes("groups", pool, member, classes, train, validation, test)


def disjoint(
    pool: Pool,
    *,
    clients: int = 20,
    groups: int = 5,
    classes: int | None = None,
    smallest: float = 0.6,
    train: int | None = None,
    validation: float = 0.2,
    test: int | None = None,
) -> Partition:
    """Like groups, but of unequal sizes: the last has `smallest` times the clients of the first (CoBo, cross-device).

    classes: how many a group owns (None: as many as all can own). 80 clients in 10 groups of 100 classes are the
    paper's 10 10 9 9 8 8 7 7 6 6 with 10 classes each. The larger the group, the fewer images has each of its clients,
    as these are split inside the group.
    """
    check_request(pool, clients, train, validation, test)
    membership("disjoint", clients, groups)
    if not 0 < smallest <= 1:
        raise InputError(f"disjoint has smallest={smallest}, expected a fraction above 0, at most 1")
    share = torch.linspace(1, smallest, groups, dtype=torch.float64)
    sizes = rounded((clients * share / share.sum())[None])[0]
    if not sizes.all():
        raise InputError(
            f"disjoint with smallest={smallest} leaves group {int(sizes.argmin())} of {groups} without a client; "
            "use smallest=1, or lower groups"
        )
    member = tuple(torch.arange(groups).repeat_interleave(sizes).tolist())
    classes = pool.num_classes // groups if classes is None else classes
    return _by_classes("disjoint", pool, member, classes, train, validation, test)


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
    sizes: str | None = None,
    repeat: bool = False,
) -> Partition:
    """All classes for everyone, but every group calls them by its own permutation of the labels (CoBo, cross-silo).

    flip: how many labels the groups permute, the same ones for all (None: every label); none of these keeps its place.
    ragged: sizes are uniform between (1 - ragged) and (1 + ragged) times `train`. sizes: instead of both, the fewest
    and the most images of a client, e.g. 10-500; log-uniform between them. repeat: images may repeat across clients,
    not within one; so many clients as you like have `train` images each.
    """
    check_request(pool, clients, train, validation, test)
    member = membership("permuted", clients, groups)
    if repeat and sizes is not None:
        raise InputError(f"permuted has repeat=True and sizes={sizes}, expected one of them; leave sizes out")
    if repeat and train is None:
        raise InputError(
            "permuted has repeat=True and train=none, expected how many images each client has; "
            f"train={min(50, int(len(pool.train_labels) / (1 + ragged)))} fits"
        )
    if not 0 <= ragged < 1:
        raise InputError(f"permuted has ragged={ragged}, expected a fraction from 0 to below 1")
    flip = pool.num_classes if flip is None else flip
    relabel = relabellings(groups, pool.num_classes, flip, pool.generator)[list(member)]
    if sizes is not None:
        if ragged:
            raise InputError(f"permuted has ragged={ragged} and sizes={sizes}, expected one of them; leave ragged out")
        dealt = shares("permuted", pool, clients, train, sizes)
        return partitioned(pool, dealt, validation, test, relabel=relabel, groups=member)
    available = len(pool.train_labels)
    size = int(equal_share("permuted", available, clients, None) / (1 + ragged)) if train is None else train
    low, high = max(1, math.ceil(size * (1 - ragged))), max(1, math.floor(size * (1 + ragged)))
    drawn = torch.randint(low, high + 1, (clients,), generator=pool.generator)
    if repeat:
        if high > available:
            raise InputError(
                f"permuted has clients of {high} images, the pool has {available}; "
                f"train={max(1, int(available / (1 + ragged)))} fits"
            )
        again, copies = repeated_rows(pool, drawn.tolist())
        return partitioned(pool, again, validation, test, relabel=relabel, groups=member)._replace(copies=copies)
    _check_fits(int(drawn.sum()), available, clients, size, ragged)
    dealt = mixed_rows(pool)[: int(drawn.sum())].split(drawn.tolist())
    return partitioned(pool, dealt, validation, test, relabel=relabel, groups=member)


def _check_fits(needed: int, available: int, clients: int, size: int, ragged: float) -> None:
    """Refuses sizes that were drawn and are too large together: only then, as a ragged draw may fit by luck."""
    fitting = available // clients
    if needed > available and (ragged == 0 or fitting == 0):
        equal_share("permuted", available, clients, size)
    if needed > available:
        raise InputError(
            f"permuted with ragged={ragged} drew sizes of {needed} images in all, the pool has {available}; "
            f"train={max(1, int(fitting / (1 + ragged)))} fits"
        )


def rotated(
    pool: Pool,
    *,
    clients: int = 20,
    groups: int = 4,
    train: int | None = None,
    sizes: str | None = None,
    validation: float = 0.2,
    test: int | None = None,
) -> Partition:
    """All classes for everyone by the same names, but group g sees its images rotated by 360 g / groups degrees.

    Inputs are shifted where those of `permuted` have other labels: training, validation and held-out images are turned
    counter-clockwise, see `turned`. Images must be square. sizes: see `permuted`.
    """
    check_request(pool, clients, train, validation, test)
    member = membership("rotated", clients, groups)
    dealt = shares("rotated", pool, clients, train, sizes)
    angles = tuple(360 * group / groups for group in member)
    return partitioned(pool, dealt, validation, test, groups=member)._replace(turned=angles)


def latent(
    pool: Pool,
    *,
    clients: int = 20,
    groups: int = 5,
    dimensions: int = 256,
    train: int | None = None,
    validation: float = 0.2,
    test: int | None = None,
) -> Partition:
    """Groups own clusters of images that look alike: k-means in `dimensions` principal axes of the inputs (FedFomo).

    Training and held-out images are clustered together, so that a client is tested on its own cluster. The paper
    clusters a trained network's features: give these as the dataset, features:my.npz, or all pixels are used. See
    `clusters` for what may differ between machines.
    """
    check_request(pool, clients, train, validation, test)
    member = membership("latent", clients, groups)
    train_inputs, test_inputs = pool.ready(pool.train_inputs), pool.ready(pool.test_inputs)
    kinds, test_kinds = clusters(train_inputs, test_inputs, groups, dimensions, pool.generator)
    order = mixed_rows(pool)
    dealt = _inside("latent", [order[kinds[order] == group] for group in range(groups)], member, train)
    own = [(group,) for group in member]
    return partitioned(pool, dealt, validation, test, classes_of=own, test_classes=test_kinds, groups=member)


def shuffled_targets(
    pool: Pool,
    *,
    clients: int = 20,
    groups: int = 5,
    base: Literal["latent", "groups"] = "latent",
    train: int | None = None,
    validation: float = 0.2,
    test: int | None = None,
) -> Partition:
    """`base`, then clients exchange (validation, test): a client's target is another group's data (FedFomo, Table 3).

    Nobody keeps its own target, and as many as can have one of another group; the paper exchanges blindly. With base
    groups, these own all classes. With t(i) the client whose target i has and g the groups of the training data, client
    i should learn from j if g(j) = g(t(i)): truth_ij = 1, which is not symmetric. `groups` remain those of the training
    data, so an adjusted Rand index says whether senders are told apart; whether the graph is right, say L1 and AUC.
    """
    if clients == 1:
        raise InputError("shuffled-targets has clients=1, expected at least 2 that exchange their targets")
    if base == "latent":
        made = latent(pool, clients=clients, groups=groups, train=train, validation=validation, test=test)
    else:
        check_request(pool, clients, train, validation, test)
        member = membership("shuffled-targets", clients, groups)
        classes = pool.num_classes // groups
        made = _by_classes("shuffled-targets", pool, member, classes, train, validation, test)
    assert made.groups is not None
    target = exchange(made.groups, pool.generator)
    group = torch.tensor(made.groups)
    return made._replace(
        validation=tuple(made.validation[i] for i in target),
        test=tuple(made.test[i] for i in target),
        truth=(group[target][:, None] == group).float().fill_diagonal_(0),
    )


def _by_classes(
    what: str,
    pool: Pool,
    member: tuple[int, ...],
    classes: int,
    train: int | None,
    validation: float,
    test: int | None,
) -> Partition:
    """Every group owns `classes` classes of its own and all their images."""
    groups = 1 + max(member)
    if classes < 1 or groups * classes > pool.num_classes:
        raise InputError(
            f"{what} needs groups x classes = {groups} x {classes} different classes, the data has {pool.num_classes}; "
            "lower groups or classes"
        )
    owned = torch.randperm(pool.num_classes, generator=pool.generator)[: groups * classes].view(groups, classes)
    order = mixed_rows(pool)
    dealt = _inside(what, [order[torch.isin(pool.train_labels[order], own)] for own in owned], member, train)
    classes_of = [tuple(owned[group].tolist()) for group in member]
    return partitioned(pool, dealt, validation, test, classes_of=classes_of, groups=member)


def _inside(what: str, rows: Sequence[Tensor], member: tuple[int, ...], train: int | None) -> list[Tensor]:
    """The rows of each group split among its clients, `train` each or all in equal parts."""
    members = [member.count(group) for group in range(len(rows))]
    # The tightest group first, so that what its refusal advises fits all others, too.
    tightest = min(range(len(rows)), key=lambda group: len(rows[group]) // members[group])
    if len(rows[tightest]) < members[tightest]:
        found = f"{len(rows[tightest])} images for {members[tightest]} clients"
        raise InputError(f"group {tightest} of {what} has {found}, expected one each; lower groups or clients")
    equal_share(f"group {tightest} of {what}", len(rows[tightest]), members[tightest], train)
    dealt = list[Tensor]()
    for own, count in zip(rows, members, strict=True):
        share = len(own) // count if train is None else train
        dealt += own[: count * share].split(share)
    return dealt
