"""Images and labels as arrays: the embedded digits, torchvision's sets, the user's own arrays, Datasets and .npz."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from scool_ppl.dealing import stratified
from scool_ppl.errors import InputError, unknown
from scool_ppl.randomness import generator

ArrayLike = Tensor | np.ndarray[Any, Any] | Sequence[Any]
SPLITS = ("train", "validation", "test")


class Arrays(NamedTuple):
    """A dataset in memory: float32 inputs, vectors (N, D) or images (N, C, H, W), and long targets (N,)."""

    inputs_train: Tensor
    targets_train: Tensor
    inputs_test: Tensor
    targets_test: Tensor
    num_classes: int


class _Source(NamedTuple):
    """A torchvision dataset: its class, where it lies below the data root, and the usual normalisation by channel."""

    loader: str
    folder: str
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


_TORCHVISION = {
    "mnist": _Source("MNIST", "MNIST/raw", 10, (0.1307,), (0.3081,)),
    "fashion-mnist": _Source("FashionMNIST", "FashionMNIST/raw", 10, (0.2860,), (0.3530,)),
    "cifar10": _Source("CIFAR10", "cifar-10-batches-py", 10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": _Source("CIFAR100", "cifar-100-python", 100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
DATASETS: tuple[str, ...] = ("digits", *_TORCHVISION)

UNREADABLE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError)
"""What numpy raises on a damaged .npz file."""

_REQUIRED = ("inputs", "targets", "client")
_OPTIONAL = ("split", "names", "groups", "truth", "num_classes")


def load_dataset(name: str, data_root: str | Path | None = None, download: bool = False) -> Arrays:
    """The dataset of that name; data_root None means the environment variable SCOOL_DATA, else the folder `data`."""
    if name == "digits":
        return _digits()
    if name not in _TORCHVISION:
        raise unknown("dataset", name, DATASETS)
    root = Path(data_root if data_root is not None else os.environ.get("SCOOL_DATA", "data"))
    source = _TORCHVISION[name]
    train, test = (_read(name, source, root, part, download) for part in (True, False))
    return Arrays(*train, *test, source.num_classes)


def _digits() -> Arrays:
    """scikit-learn's 1797 digits as vectors (64,) in [0, 1]; the 500 held-out ones are fixed and stratified."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    inputs = torch.from_numpy(bunch.data / 16.0).float()
    targets = torch.from_numpy(bunch.target).long()
    held_out = torch.zeros(len(targets), dtype=torch.bool)
    held_out[stratified(targets, 500, generator(0, "digits"))] = True
    return Arrays(inputs[~held_out], targets[~held_out], inputs[held_out], targets[held_out], 10)


def _read(name: str, source: _Source, root: Path, train: bool, download: bool) -> tuple[Tensor, Tensor]:
    """One part of a torchvision dataset, whole arrays at once: its items are PIL images, read one by one in minutes."""
    from torchvision import datasets

    folder = root / source.folder
    source_hint = "check the network" if download else "--download fetches it"
    remedy = f"{source_hint}, --data-root names another folder"
    try:
        dataset = getattr(datasets, source.loader)(root, train=train, download=download)
    except (RuntimeError, OSError, ValueError, TypeError, LookupError, EOFError, AssertionError) as error:
        if not folder.is_dir() and not download:
            raise InputError(f"no {name} in {folder}; {remedy}") from error
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"cannot read {name} in {folder} ({reason}); {remedy}") from error
    images, targets = torch.as_tensor(dataset.data), torch.as_tensor(dataset.targets, dtype=torch.long)
    if len(images) != len(targets):
        raise InputError(f"{name} in {folder} has {len(images)} images and {len(targets)} labels; {remedy}")
    images = images.unsqueeze(1) if images.ndim == 3 else images.permute(0, 3, 1, 2)
    inputs = images.to(torch.float32, memory_format=torch.contiguous_format)
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (source.mean, source.std))
    return inputs.sub_(255 * mean).div_(255 * std), targets


def read_npz(path: str | Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a federation's .npz file (see `Federation.save_npz`), without unpickling anything."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    try:
        with open(path, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InputError(f"{path} holds a single array, expected {', '.join(_REQUIRED)}; use numpy.savez")
            for name in archive.files:
                if name not in _REQUIRED + _OPTIONAL:
                    raise unknown(f"array in {path}", name, _REQUIRED + _OPTIONAL)
                arrays[name] = archive[name]
    except FileNotFoundError:
        raise InputError(f"no file {path}; expected an .npz with inputs, targets and client") from None
    except InputError:
        raise
    except UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"cannot read {path} ({reason}); write it with numpy.savez or Federation.save_npz") from error
    missing = [name for name in _REQUIRED if name not in arrays]
    if missing:
        raise InputError(f"{path} has no {' and no '.join(missing)}, expected {', '.join(_REQUIRED)}; add the array")
    return arrays


def write_npz(path: str | Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write the arrays at once: a reader finds the old file or the whole new one."""
    target = Path(path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            np.savez(file, **dict[str, Any](arrays))
        os.replace(partial, target)
    except OSError as error:
        raise InputError(
            f"cannot write {target} ({error.strerror or error}); choose a folder you can write to"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def float_tensor(values: ArrayLike, what: str) -> Tensor:
    """The values as float32, sharing the memory of those that are."""
    tensor = _tensor(values, what)
    if tensor.is_complex():
        raise InputError(f"{what} are {tensor.dtype}, expected real numbers; give real and imaginary parts as features")
    return tensor.to(torch.float32)


def long_tensor(values: ArrayLike, what: str) -> Tensor:
    """The values as int64; fractions are refused, not rounded."""
    tensor = _tensor(values, what)
    if tensor.numel() and (tensor.is_floating_point() or tensor.is_complex()):
        raise InputError(f"{what} are {tensor.dtype}, expected whole numbers; convert them to integers")
    return tensor.long()


def _tensor(values: ArrayLike, what: str) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{what} cannot be read as one array of numbers ({reason}); give an array") from error


def read_items(dataset: Dataset[Any], what: str) -> tuple[Tensor, Tensor]:
    """All (input, label) items of a map-style Dataset as inputs (N, ...) float32 and targets (N,) long."""
    count = len(dataset) if hasattr(dataset, "__len__") else 0
    if count == 0:
        raise InputError(f"{what} has no length or no items, expected a map-style Dataset with at least one item")
    inputs, labels = [], []
    for index in range(count):
        item = dataset[index]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InputError(f"{what} item {index} is a {type(item).__name__}, expected a pair (input, label)")
        if not isinstance(item[0], Tensor | np.ndarray):
            kind = type(item[0]).__name__
            raise InputError(f"{what} has inputs of type {kind}, expected tensors; add transforms.ToTensor()")
        inputs.append(float_tensor(item[0], f"{what} inputs"))
        labels.append(long_tensor(item[1], f"{what} labels"))
        if inputs[-1].shape != inputs[0].shape or labels[-1].numel() != 1:
            found = f"input shape {tuple(inputs[-1].shape)} and {labels[-1].numel()} labels"
            raise InputError(f"{what} item {index} has {found}, expected {tuple(inputs[0].shape)} and one label")
    return torch.stack(inputs), torch.stack([label.reshape(()) for label in labels])


def rows_per_client(clients: ArrayLike, count: int) -> tuple[list[Tensor], list[int]]:
    """Index lists and ids, from one owner per row or from K index lists."""
    if isinstance(clients, Tensor | np.ndarray):
        per_row = clients.ndim < 2 and clients.dtype != object
    else:
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


def fractions(rows: Tensor, validation: float, test: float, seed: int, name: str) -> list[Tensor]:
    """A client's rows as train, validation, test; keyed by the client's name, so other clients do not matter."""
    if not (validation >= 0 and test >= 0 and validation + test < 1):
        raise InputError(f"validation={validation} and test={test}, expected fractions from 0 whose sum is below 1")
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
