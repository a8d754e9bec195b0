"""What all recipes share: the pool of images, its division, and the checks of a request."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scool_ppl.errors import InputError


class Pool(NamedTuple):
    """What a recipe divides: labels and inputs of the training pool (N, ...) and of the held-out images (T, ...).

    generator: all of a recipe's randomness. ready: what makes of some of the inputs those that networks get.
    """

    train_labels: Tensor
    test_labels: Tensor
    num_classes: int
    generator: torch.Generator
    train_inputs: Tensor
    test_inputs: Tensor
    ready: Callable[[Tensor], Tensor] = torch.as_tensor


class Partition(NamedTuple):
    """One index list per client and split; train and validation index the training pool, test the held-out images.

    relabel: (K, C) long, client i calls class c relabel[i, c]; groups: the true group of each client.
    truth: (K, K) true graph [receiver, sender], zero diagonal, where it is not simply that of the groups.
    turned: by how many degrees, counter-clockwise, the images of each client are rotated, training and held-out.
    copies: from which copy of the pool each client's images are, where images repeat across clients.
    """

    train: tuple[Tensor, ...]
    validation: tuple[Tensor, ...]
    test: tuple[Tensor, ...]
    relabel: Tensor | None = None
    groups: tuple[int, ...] | None = None
    truth: Tensor | None = None
    turned: tuple[float, ...] | None = None
    copies: tuple[int, ...] | None = None


def stratified(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` positions whose label shares are those of `labels` to within one image per class, in ascending order."""
    order = torch.randperm(len(labels), generator=generator)
    order = order[labels[order].argsort(stable=True)]
    picked = torch.arange(count) * len(labels) // max(count, 1)
    return order[picked].sort().values


def check_request(pool: Pool, clients: int, train: int | None, validation: float, test: int | None) -> None:
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


def equal_share(what: str, available: int, clients: int, train: int | None) -> int:
    """Images per client, `train` of them or an equal share of all."""
    fitting = available // clients
    share = max(1, fitting) if train is None else train
    if clients * share > available:
        remedy = f"lower train (train={fitting} fits) or clients" if fitting else "lower clients"
        raise InputError(
            f"{what} needs {clients} x {share} = {clients * share} images, the pool has {available}; {remedy}"
        )
    return share


def unequal_shares(what: str, pool: Pool, clients: int, sizes: str) -> list[int]:
    """Images per client, log-uniform in `sizes`, e.g. "10-500": P(size <= n) = log((n + 1) / 10) / log(501 / 10)."""
    ends = re.fullmatch(r"([1-9]\d{0,8})-([1-9]\d{0,8})", sizes)
    low, high = map(int, ends.groups()) if ends else (1, 0)
    if low > high:
        raise InputError(
            f"{what} has sizes={sizes}, expected the smallest and the largest, at least 1, e.g. sizes=10-500"
        )
    place, available = torch.rand(clients, generator=pool.generator, dtype=torch.float64), len(pool.train_labels)

    def drawn(high: int) -> list[int]:
        return (low * ((high + 1) / low) ** place).long().clamp(low, high).tolist()

    if clients * low > available:
        equal_share(what, available, clients, None)
        raise InputError(
            f"{what} with sizes={sizes} needs at least {clients} x {low} = {clients * low} images, the pool has "
            f"{available}; use sizes=1-{available // clients}, or lower clients"
        )
    if sum(drawn(high)) > available:
        fitting = low - 1 + bisect_right(range(low, high), available, key=lambda largest: sum(drawn(largest)))
        raise InputError(
            f"{what} with sizes={sizes} drew {sum(drawn(high))} images in all, the pool has {available}; "
            f"use sizes={low}-{fitting}, or lower clients"
        )
    return drawn(high)


def shares(what: str, pool: Pool, clients: int, train: int | None, sizes: str | None) -> tuple[Tensor, ...]:
    """Disjoint random images for each client: as many as drawn from `sizes`, else `train`, else an equal share."""
    if sizes is None:
        counts = [equal_share(what, len(pool.train_labels), clients, train)] * clients
    elif train is None:
        counts = unequal_shares(what, pool, clients, sizes)
    else:
        raise InputError(f"{what} has train={train} and sizes={sizes}, expected one of them; leave train out")
    return mixed_rows(pool)[: sum(counts)].split(counts)


def membership(what: str, clients: int, groups: int) -> tuple[int, ...]:
    """Contiguous groups whose sizes differ by at most one client."""
    if not 1 <= groups <= clients:
        raise InputError(f"{what} has groups={groups}, expected 1 to {clients}, the number of clients")
    return tuple(client * groups // clients for client in range(clients))


def exchange(groups: Sequence[int], generator: torch.Generator) -> list[int]:
    """A random permutation in which nobody keeps its place and as few as possible get one of their own group. (K,)."""
    count = len(groups)
    sizes = torch.bincount(torch.tensor(groups))
    order = torch.randperm(count, generator=generator)
    order = order[torch.tensor(groups)[order].argsort(stable=True)]
    # Sorted by group and moved on by the largest group, everyone lands in another group where that is possible.
    largest = int(sizes.max())
    target = [0] * count
    for giver, taker in zip(order.tolist(), order.roll(largest if largest < count else 1).tolist(), strict=True):
        target[taker] = giver
    # That moves groups as a whole; exchanges that lose nothing mix them.
    for a, b in torch.randint(count, (20 * count, 2), generator=generator).tolist():
        before = (groups[a] == groups[target[a]]) + (groups[b] == groups[target[b]])
        after = (groups[a] == groups[target[b]]) + (groups[b] == groups[target[a]])
        if target[a] != b and target[b] != a and after <= before:
            target[a], target[b] = target[b], target[a]
    return target


def mixed_rows(pool: Pool) -> Tensor:
    return torch.randperm(len(pool.train_labels), generator=pool.generator)


def repeated_rows(pool: Pool, counts: Sequence[int]) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Random images for each client, and from which copy of the pool: it is dealt out anew as often as needed."""
    rows: list[Tensor] = []
    copies: list[int] = []
    order, used, copy = torch.zeros(0, dtype=torch.long), 0, -1
    for count in counts:
        if used + count > len(order):
            order, used, copy = mixed_rows(pool), 0, copy + 1
        rows.append(order[used : used + count])
        copies.append(copy)
        used += count
    return tuple(rows), tuple(copies)


def rounded(amounts: Tensor) -> Tensor:
    """Rows rounded to whole numbers with the row sums kept, by largest remainder. amounts: (K, C)."""
    floors = amounts.floor()
    missing = amounts.sum(1).round() - floors.sum(1)
    rank = (floors - amounts).argsort(dim=1, stable=True).argsort(dim=1)
    return (floors + (rank < missing[:, None])).long()


def deal(pool: Pool, counts: Tensor) -> tuple[Tensor, ...]:
    """Disjoint random images, counts[i, c] of class c for client i. counts: (K, C)."""
    clients, order = torch.arange(counts.shape[0]), mixed_rows(pool)
    picked, owners = [], []
    for label in range(counts.shape[1]):
        owner = clients.repeat_interleave(counts[:, label])
        picked.append(order[pool.train_labels[order] == label][: len(owner)])
        owners.append(owner)
    by_owner = torch.cat(owners).argsort(stable=True)
    return torch.cat(picked)[by_owner].split(counts.sum(1).tolist())


def relabellings(groups: int, num_classes: int, flip: int, generator: torch.Generator) -> Tensor:
    """(G, C) distinct permutations of the labels, each moving the same `flip` labels and no other."""
    if not 0 <= flip <= num_classes:
        raise InputError(f"permuted has flip={flip}, expected 0 to {num_classes}, the number of classes")
    # How many permutations of n things leave none in place: D_n = (n - 1) (D_n-1 + D_n-2).
    ways = [1, 0]
    for n in range(2, num_classes + 1):
        ways.append((n - 1) * (ways[-1] + ways[-2]))
    if groups > ways[flip]:
        enough = [n for n, found in enumerate(ways) if found >= groups]
        best = f"flip={enough[0]}" if enough else f"flip={ways.index(max(ways))},groups={max(ways)}"
        raise InputError(
            f"permuted needs {groups} different ways to exchange {flip} labels, there are {ways[flip]}; use {best}"
        )
    flipped = torch.randperm(num_classes, generator=generator)[:flip].sort().values
    chosen: list[list[int]] = []
    while len(chosen) < groups:
        labels = torch.arange(num_classes)
        labels[flipped] = flipped[torch.randperm(flip, generator=generator)]
        if int((labels[flipped] == flipped).sum()) == 0 and labels.tolist() not in chosen:
            chosen.append(labels.tolist())
    return torch.tensor(chosen)


def partitioned(
    pool: Pool,
    dealt: Sequence[Tensor],
    validation: float,
    test: int | None,
    *,
    own_classes: bool = False,
    classes_of: Sequence[tuple[int, ...]] | None = None,
    test_classes: Tensor | None = None,
    relabel: Tensor | None = None,
    groups: tuple[int, ...] | None = None,
) -> Partition:
    """Keep a random part of every client's images for validation and give it its held-out images.

    classes_of: the classes that each client is tested on, its own if own_classes, else all. test_classes: what stands
    for the labels of the held-out images, (T,), e.g. their clusters.
    """
    kind, remedy = (
        ("classes", "raise test or classes") if test_classes is None else ("cluster", "raise test, lower groups")
    )
    test_classes = pool.test_labels if test_classes is None else test_classes
    held_out = torch.arange(len(pool.test_labels))
    if test is not None:
        held_out = stratified(pool.test_labels, test, pool.generator)
    if own_classes:
        classes_of = [tuple(pool.train_labels[rows].unique().tolist()) for rows in dealt]
    tests: list[Tensor] = [held_out] * len(dealt)
    if classes_of is not None:
        # One list per set of classes, not per client: with many clients the copies would outweigh the images.
        shared = {
            classes: held_out[torch.isin(test_classes[held_out], torch.tensor(classes))]
            for classes in dict.fromkeys(classes_of)
        }
        tests = [shared[classes] for classes in classes_of]
    for client, rows in enumerate(tests):
        if len(rows) == 0:
            raise InputError(f"client {client} has no held-out image of its {kind}; {remedy}")
    parts = [kept_back(rows[torch.randperm(len(rows), generator=pool.generator)], validation) for rows in dealt]
    train, held_back = zip(*parts, strict=True)
    return Partition(train, held_back, tuple(tests), relabel=relabel, groups=groups)


def kept_back(rows: Tensor, validation: float) -> tuple[Tensor, Tensor]:
    """Of rows in a random order those to train on, at least one, and the first of them to validate on; both ascending."""
    count = min(round(validation * len(rows)), len(rows) - 1)
    return rows[count:].sort().values, rows[:count].sort().values


def as_trained(what: str, pool: Pool, made: Partition) -> Partition:
    """The partition with a part of each client's held-out images that has the label shares of its other images.

    Client i has counts_ic images of class c, N_i in all, and h_ic held-out ones: it is tested on n_i of these, drawn
    without replacement, n_i = min_c floor(h_ic N_i / counts_ic), n_i counts_ic / N_i of class c to within one image.
    """
    tests = []
    for client, rows in enumerate(made.test):
        own = torch.cat([made.train[client], made.validation[client]])
        counts, stock = (
            torch.bincount(labels, minlength=pool.num_classes)
            for labels in (pool.train_labels[own], pool.test_labels[rows])
        )
        lacking = (counts > 0) & (stock == 0)
        if bool(lacking.any()):
            raise InputError(
                f"{what} cannot test client {client} as trained: class {int(lacking.nonzero()[0])} has no held-out "
                "image among those used; raise test, or use tested=balanced"
            )
        known = counts > 0
        size = int((stock[known] * len(own) // counts[known]).min())
        wanted = rounded((size * counts.double() / len(own))[None])
        (places,) = deal(pool._replace(train_labels=pool.test_labels[rows]), wanted)
        tests.append(rows[places].sort().values)
    return made._replace(test=tuple(tests))
