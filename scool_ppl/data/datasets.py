"""The datasets that recipes deal out: the embedded digits, torchvision's by name, the user's own by path."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from scool_ppl.base.randomness import generator
from scool_ppl.data.own import READERS, Arrays, Channels, channels_first, held_out, labelled, read_arrays, with_scaling
from scool_ppl.errors import InputError, unknown


class _Named(NamedTuple):
    """A torchvision dataset: its class, where it lies below the data root, and the usual normalisation by channel."""

    loader: str
    folder: str
    num_classes: int
    mean: Channels
    std: Channels


_NAMED = {
    "mnist": _Named("MNIST", "MNIST/raw", 10, (0.1307,), (0.3081,)),
    "fashion-mnist": _Named("FashionMNIST", "FashionMNIST/raw", 10, (0.2860,), (0.3530,)),
    "cifar10": _Named("CIFAR10", "cifar-10-batches-py", 10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": _Named("CIFAR100", "cifar-100-python", 100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
DATASETS: tuple[str, ...] = ("digits", *_NAMED)

_BROKEN = (RuntimeError, OSError, ValueError, TypeError, LookupError, EOFError, AssertionError)
"""What torchvision raises for files that are missing, damaged or cannot be fetched."""


_REMEDY = "remove it and fetch it again, or name another folder with --data-root"


def find_reader(dataset: str) -> tuple[Callable[..., Arrays], str] | None:
    """What reads the user's own `my.npz`, `features:my.npz` or `imagefolder:PATH`, and its path; None for a name.

    The keyword arguments of the reader are options of the spec. A dataset that is none of these is refused.
    """
    kind, colon, path = dataset.partition(":")
    if colon and kind in READERS:
        return READERS[kind], path
    if dataset.endswith(".npz"):
        return labelled, dataset
    if dataset not in DATASETS:
        raise unknown("dataset", dataset, (*DATASETS, "FILE.npz", *(f"{kind}:PATH" for kind in READERS)))
    return None


def load_dataset(dataset: str, data_root: str | Path | None = None, download: bool = False, **options: int) -> Arrays:
    """The dataset of that name or path; data_root None means the environment variable SCOOL_DATA, else `data`.

    A named one is read from torchvision's files in the data root, else from NAME.npz there (see `labelled`; its uint8
    images get the usual normalisation of that name, see `Arrays.ready`), else fetched by torchvision if `download`.
    """
    reader = find_reader(dataset)
    if reader is not None:
        read, path = reader
        return read(path, **options)
    if dataset == "digits":
        return _digits()
    root = Path(data_root if data_root is not None else os.environ.get("SCOOL_DATA", "data"))
    return _named(dataset, root, download)


def _digits() -> Arrays:
    """scikit-learn's 1797 digits as vectors (64,) in [0, 1]; the 500 held-out ones are fixed and stratified."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    inputs = torch.from_numpy(bunch.data / 16.0).float()
    targets = torch.from_numpy(bunch.target).long()
    return Arrays(*held_out(inputs, targets, 500, generator(0, "digits")), 10)


def _named(name: str, root: Path, download: bool) -> Arrays:
    """torchvision's files, else NAME.npz, else a download."""
    source, file = _NAMED[name], root / f"{name}.npz"
    try:
        arrays = _torchvision(source, root, download=False)
    except _BROKEN as error:
        # torchvision says so of files that are not there, or, where it knows their checksums, that are damaged.
        missing = isinstance(error, RuntimeError) and "not found" in str(error)
        if missing and file.is_file():
            arrays = read_arrays(file)
        elif missing and download:
            arrays = _downloaded(name, root)
        else:
            raise _unreadable(name, root, error) from error
    labels = int(torch.cat([arrays.targets_train, arrays.targets_test]).max())
    for images, targets in (arrays[:2], arrays[2:4]):
        if len(images) != len(targets):
            found = f"{len(images)} images and {len(targets)} labels"
            raise InputError(f"{name} in {root / source.folder} has {found}; {_REMEDY}")
    if labels >= source.num_classes:
        raise InputError(f"{name} in {root} has a label {labels}, expected 0 to {source.num_classes - 1}; {_REMEDY}")
    return with_scaling(arrays._replace(num_classes=source.num_classes), (source.mean, source.std))


def _downloaded(name: str, root: Path) -> Arrays:
    folder = root / _NAMED[name].folder
    print(f"scool: no {name} in {folder}; downloading it", file=sys.stderr)
    try:
        return _torchvision(_NAMED[name], root, download=True)
    except _BROKEN as error:
        raise InputError(
            f"cannot download {name} into {folder} ({_reason(error)}); check the network, put {name}.npz into {root}, "
            "or name another folder with --data-root"
        ) from error


def _unreadable(name: str, root: Path, error: Exception) -> InputError:
    folder = root / _NAMED[name].folder
    remedy = f"--download fetches it, --data-root names another folder, and {name}.npz in it would do"
    if not folder.is_dir():
        return InputError(f"no {name} in {folder}; {remedy}")
    return InputError(f"cannot read {name} in {folder} ({_reason(error)}); {remedy}")


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _torchvision(source: _Named, root: Path, download: bool) -> Arrays:
    """Whole arrays of bytes (N, C, H, W) at once: the items are PIL images, read one by one in minutes."""
    from torchvision import datasets

    def read(train: bool) -> tuple[Tensor, Tensor]:
        dataset = getattr(datasets, source.loader)(root, train=train, download=download)
        return channels_first(torch.as_tensor(dataset.data)), torch.as_tensor(dataset.targets).long()

    return Arrays(*read(True), *read(False), source.num_classes)
