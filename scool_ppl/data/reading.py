"""What a federation is made of: the user's arrays and .npz files, read as tensors and index lists."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scool_ppl.base.arguments import check_kind, finite
from scool_ppl.base.arrays import ArrayLike, long_tensor
from scool_ppl.base.files import opened_npz
from scool_ppl.base.randomness import generator
from scool_ppl.errors import InputError, unknown

SPLITS = ("train", "validation", "test")

OWNER = "client"
REQUIRED = ("inputs", "targets", OWNER)
OPTIONAL = ("split", "names", "groups", "truth", "regions", "num_classes", "task", "preparation")


def read_npz(
    path: str | Path, required: Sequence[str] = REQUIRED, optional: Sequence[str] = OPTIONAL
) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an .npz file, by default a federation's (see `Federation.save_npz`); nothing is unpickled."""
    known, file = (*required, *optional), Path(path).expanduser()
    if not file.exists():
        raise InputError(f"no file {path}; expected an .npz with {', '.join(required)}")
    with opened_npz(file, "write it with numpy.savez or Federation.save_npz") as found:
        for name in found:
            if name not in known:
                raise unknown(f"array in {path}", name, known)
        arrays = dict(found)
    missing = [name for name in required if name not in arrays]
    if missing:
        dealt = missing == [OWNER]
        remedy = f"add it, or name a recipe that deals the rows out, e.g. iid:{path}" if dealt else "add the array"
        raise InputError(f"{path} has no {' and no '.join(missing)}, expected {', '.join(required)}; {remedy}")
    return arrays


def read_npz_of_one(path: str | Path, name: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a file of one client, whom it need not name."""
    check_kind("name", name, str, "what the client is called")
    required = tuple(array for array in REQUIRED if array != OWNER)
    arrays = read_npz(path, required, (OWNER, *OPTIONAL))
    rows = len(arrays["targets"]) if arrays["targets"].ndim else 0
    owners = arrays.pop(OWNER, np.zeros(rows, dtype=np.int64))
    if len(np.unique(owners)) > 1:
        raise InputError(
            f"{path} has rows of {len(np.unique(owners))} clients, expected those of '{name}' only; leave name out, or "
            "write a file for each client"
        )
    return {**arrays, OWNER: owners, "names": np.array([name])}


def rows_per_client(clients: ArrayLike, count: int) -> tuple[list[Tensor], list[int]]:
    """Index lists and ids, from one owner per row or from K index lists."""
    if isinstance(clients, Tensor | np.ndarray):
        per_row = clients.ndim < 2 and clients.dtype != object
    else:
        check_kind("clients", clients, Collection, "give an owner for each row, or a list of rows for each client")
        per_row = all(isinstance(owner, int | float | np.number) for owner in clients)
    if per_row:
        owner = long_tensor(clients, "clients").flatten()
        if len(owner) != count or count == 0:
            raise InputError(f"{len(owner)} client ids for {count} rows, expected one id a row and at least one row")
        ids, position = owner.unique(return_inverse=True)
        if int(ids[0]) < 0:
            raise InputError(f"client id {int(ids[0])}, expected 0 or more; leave rows that nobody owns out")
        lists = position.argsort(stable=True).split(torch.bincount(position).tolist())
        return list(lists), ids.tolist()
    lists = tuple(long_tensor(rows, "a client's index list").flatten() for rows in clients)
    owned = torch.cat(lists) if lists else torch.empty(0, dtype=torch.long)
    if len(owned) and not 0 <= int(owned.min()) <= int(owned.max()) < count:
        raise InputError(f"index lists hold {int(owned.min())} to {int(owned.max())}, expected 0 to {count - 1}")
    if len(owned.unique()) != len(owned):
        raise InputError("a row is in two index lists or twice in one, expected one owner a row; remove the copies")
    return list(lists), list(range(len(lists)))


def check_fractions(validation: float, test: float) -> None:
    """Raises InputError unless these are parts of a client's rows that leave some to train on."""
    if not finite(validation, test) or min(validation, test) < 0 or validation + test >= 1:
        raise InputError(f"validation={validation} and test={test}, expected fractions from 0 whose sum is below 1")


def fractions(rows: Tensor, validation: float, test: float, seed: int, name: str) -> list[Tensor]:
    """A client's rows as train, validation, test; keyed by the client's name, so other clients do not matter."""
    check_fractions(validation, test)
    mixed = rows[torch.randperm(len(rows), generator=generator(seed, "split", name))]
    held_out, held_back = round(test * len(rows)), round(validation * len(rows))
    parts = mixed.split([held_out, held_back, len(rows) - held_out - held_back])
    return [part.sort().values for part in reversed(parts)]


def split_codes(split: ArrayLike, count: int) -> Tensor:
    """The split of each row: 0 train, 1 validation, 2 test."""
    codes = long_tensor(split, "split")
    if codes.shape != (count,):
        raise InputError(f"split has shape {tuple(codes.shape)}, expected ({count},): one code a row")
    if count and not 0 <= int(codes.min()) <= int(codes.max()) < len(SPLITS):
        low, high = int(codes.min()), int(codes.max())
        raise InputError(f"split runs from {low} to {high}, expected 0 train, 1 validation, 2 test; correct the codes")
    return codes
