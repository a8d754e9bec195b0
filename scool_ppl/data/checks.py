"""What a federation must be, or it is refused, and what it had better be, or a warning says so."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scool_ppl.base.describe import listed
from scool_ppl.data.reading import SPLITS
from scool_ppl.errors import InputError

if TYPE_CHECKING:
    from scool_ppl.data.federation import Federation

LARGE = 10.0
"""Inputs and targets beyond this size are warned about: the default learning rate is for numbers of about one."""

ENOUGH = 10_000
"""Rows that tell the size of numbers."""


def check(federation: Federation) -> None:
    """Refuse arrays, clients or splits that make no federation, in this order."""
    _check_arrays(federation)
    _check_clients(federation)
    _check_splits(federation)


def _check_arrays(federation: Federation) -> None:
    """Tensors of the task's types and values."""
    inputs, targets, task = federation.inputs, federation.targets, federation.task
    if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor):
        raise InputError("inputs and targets are not both tensors, expected tensors; use Federation.from_arrays")
    if federation.num_classes != task.num_classes:
        found = f"num_classes is {federation.num_classes}, but the task '{task.name}' has {task.num_classes} classes"
        raise InputError(f"{found}, expected the same number; leave num_classes out")
    task.check(inputs, targets)
    if federation.preparation is not None:
        _check_preparation(federation)


def _check_preparation(federation: Federation) -> None:
    """It has as many inputs and labels as the arrays."""
    preparation, inputs = federation.preparation, federation.inputs
    assert preparation is not None
    names, labels = preparation.feature_names, preparation.labels
    if preparation.columns and tuple(inputs.shape[1:]) != (len(names),):
        found = f"the preparation makes {len(names)} inputs of a row, the inputs have shape {tuple(inputs.shape)}"
        raise InputError(
            f"{found}, expected (N, {len(names)}); leave the preparation out, or transform the table with it"
        )
    if labels and len(labels) != federation.num_classes:
        found = f"the preparation names {len(labels)} classes, the task has {federation.num_classes}"
        raise InputError(f"{found}, expected the same number; name every class")


def _check_clients(federation: Federation) -> None:
    """Names, relabelling, groups and truth fit the number of clients."""
    names, count, classes = federation.names, federation.num_clients, federation.num_classes
    if count == 0:
        raise InputError("the federation has no clients, expected at least one")
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) != count else []
    if repeated or "" in names:
        raise InputError(f"names {repeated or ['']} are repeated or empty, expected a different name for each client")
    for split in SPLITS:
        if len(federation._lists(split)) != count:
            found = len(federation._lists(split))
            raise InputError(f"{split} has {found} index lists for {count} clients, expected one for each")
    for what, known in (("groups", federation.groups), ("regions", federation.regions)):
        if known is not None and len(known) != count:
            raise InputError(f"{len(known)} {what} for {count} clients, expected one for each")
    truth, relabel = federation.truth, federation.relabel
    if truth is not None:
        if truth.shape != (count, count):
            raise InputError(f"truth has shape {tuple(truth.shape)}, expected ({count}, {count}): [receiver, sender]")
        if not truth.is_floating_point() or not truth.isfinite().all() or (truth < 0).any() or truth.diagonal().any():
            raise InputError("truth must be finite floating-point weights from 0 up with a zero diagonal; correct it")
    if relabel is not None:
        if classes == 0:
            raise InputError(f"relabel was given, but {federation.task.name} has no classes to rename; leave it out")
        if relabel.dtype != torch.long or relabel.shape != (count, classes):
            found_shape = tuple(relabel.shape)
            raise InputError(f"relabel is {relabel.dtype} {found_shape}, expected int64 ({count}, {classes})")
        if int(relabel.min()) < 0 or int(relabel.max()) >= classes:
            raise InputError(f"relabel holds labels outside 0 to {classes - 1}; use labels in that range")


def _check_splits(federation: Federation) -> None:
    """Rows exist, nobody trains on another's training rows, and no row that is trained on is held out by anyone."""
    count = len(federation.inputs)
    for split in SPLITS:
        lists = federation._lists(split)
        for client, rows in {id(rows): (i, rows) for i, rows in enumerate(lists)}.values():
            who = f"{split} rows of {federation.names[client]}"
            if not isinstance(rows, Tensor) or rows.dtype != torch.long or rows.ndim != 1:
                kind = f"{rows.dtype} {tuple(rows.shape)}" if isinstance(rows, Tensor) else type(rows).__name__
                raise InputError(f"{who} are {kind}, expected an int64 index list; use Federation.from_arrays")
            if len(rows) == 0 and split == "train":
                raise InputError(f"{federation.names[client]} has no training data, expected at least one row; drop it")
            if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < count:
                raise InputError(f"{who} run from {int(rows.min())} to {int(rows.max())}, expected 0 to {count - 1}")
            # Recipes give ascending lists: sorting thousands of long ones to find no copy takes seconds.
            if not (rows[1:] > rows[:-1]).all() and len(rows.unique()) != len(rows):
                raise InputError(f"{who} name a row twice, expected different rows; remove the copy")
    trained_on = torch.zeros(count, dtype=torch.bool)
    for client, rows in enumerate(federation.train):
        _refuse(federation, client, rows[trained_on[rows]], "trains on", "another client trains on it")
        trained_on[rows] = True
    held_back = torch.zeros(count, dtype=torch.bool)
    for client, rows in enumerate(federation.validation):
        _refuse(federation, client, rows[trained_on[rows]], "validates on", "a client trains on it")
        held_back[rows] = True
    for client, rows in {id(rows): (i, rows) for i, rows in enumerate(federation.test)}.values():
        _refuse(federation, client, rows[trained_on[rows]], "is tested on", "a client trains on it")
        _refuse(federation, client, rows[held_back[rows]], "is tested on", "a client validates on it")


def _refuse(federation: Federation, client: int, shared: Tensor, does: str, reason: str) -> None:
    if len(shared):
        raise InputError(
            f"{federation.names[client]} {does} row {int(shared[0])} but {reason}; expected separate rows, remove one"
        )


def warn_of_range(federation: Federation) -> None:
    """Warn of numbers that nobody has scaled: with the default learning rate a network learns nothing from them.

    Size is the root of the mean square over training rows, of many every so many; that of the largest column counts.
    """
    rows = torch.cat(federation.train)
    rows = rows[:: 1 + len(rows) // ENOUGH]
    for what, values in (("inputs", federation.inputs), ("targets", federation.targets)):
        if not values.is_floating_point():
            continue
        size = values[rows].square().mean(0).sqrt().flatten()
        if float(size.max()) > LARGE:
            where = _where(federation, what, int(size.argmax()), len(size))
            _say(
                f"{what} are of size {float(size.max()):.3g}{where}, expected about one: scale them, (x - mean) / std, "
                "as tables are with scale=pooled, and features:FILE.npz"
            )


def warn_of_clients(federation: Federation) -> None:
    """Warn of clients who see one class only, and of those whom nothing is known of in the end."""
    if federation.num_classes and federation.targets.ndim == 1:
        of_one_class = (federation.label_counts("train") > 0).sum(1) == 1
        if bool(of_one_class.any()):
            who = _chosen(federation.names, of_one_class)
            _say(f"training rows of one class only: {who}; alone they learn nothing else, give them rows of others")
    untested = federation.sizes("test") == 0
    if bool(untested.any()):
        _say(f"no test rows: {_chosen(federation.names, untested)}; they get no score, give them more rows")


def _where(federation: Federation, what: str, place: int, width: int) -> str:
    preparation = federation.preparation
    if what == "targets" or width == 1:
        return ""
    named = preparation.feature_names if preparation is not None and preparation.columns else None
    return f" (column '{named[place]}')" if named else f" (input {place})"


def _chosen(names: Sequence[str], which: Tensor) -> str:
    chosen = [names[client] for client in which.nonzero().flatten().tolist()]
    return f"{listed(chosen)} ({len(chosen)} of {len(names)} clients)"


def _say(text: str) -> None:
    warnings.warn(text, stacklevel=4)
