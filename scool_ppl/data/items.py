"""Federations of map-style Datasets, one a client: torchvision's, Hugging Face's, anybody's whose items can be counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from scool_ppl.base.arrays import float_tensor
from scool_ppl.data.preparation import Preparation, with_labels
from scool_ppl.errors import InputError, unknown

INPUTS = ("image", "img", "pixel_values", "input", "inputs", "x", "features", "data")
LABELS = ("label", "labels", "fine_label", "target", "targets", "y")
"""Where items are mappings: the keys that are looked for, in this order, unless they are named."""


class Items(NamedTuple):
    """All items of a Dataset: inputs (N, ...) float32, N labels, and what the classes are called, () if it does not say."""

    inputs: Tensor
    labels: list[Any]
    names: tuple[str, ...]


class Joined(NamedTuple):
    """The items of all clients: inputs, targets, whose each is, and the names of the classes, None if unknown."""

    inputs: Tensor
    targets: Tensor
    owner: Tensor
    preparation: Preparation | None


def read_datasets(datasets: Mapping[str, Dataset[Any]], input: str | None = None, label: str | None = None) -> Joined:
    """The items of each client's Dataset, one after the other; texts become their places in the alphabet."""
    if not datasets:
        raise InputError("no datasets were given, expected one for each client")
    parts = [read_items(dataset, name, input, label) for name, dataset in datasets.items()]
    shapes = sorted({tuple(part.inputs.shape[1:]) for part in parts})
    if len(shapes) != 1:
        raise InputError(f"the datasets have inputs of shapes {shapes}, expected one shape; resize or crop them")
    owner = torch.arange(len(parts)).repeat_interleave(torch.tensor([len(part.labels) for part in parts]))
    targets, names = _targets([label for part in parts for label in part.labels], [part.names for part in parts])
    return Joined(torch.cat([part.inputs for part in parts]), targets, owner, with_labels(names) if names else None)


def read_items(dataset: Dataset[Any], what: str, input: str | None = None, label: str | None = None) -> Items:
    """The items of a Dataset: pairs (input, label), or mappings with these under the keys `input` and `label`."""
    count = len(dataset) if hasattr(dataset, "__len__") else 0
    if count == 0:
        raise InputError(f"{what} has no length or no items, expected a map-style Dataset with at least one item")
    inputs: list[Tensor] = []
    labels: list[Any] = []
    for index in range(count):
        found, named = _pair(dataset[index], f"{what} item {index}", input, label)
        inputs.append(_input(found, what))
        labels.append(_label(named, f"{what} item {index}"))
        if inputs[-1].shape != inputs[0].shape:
            found_shape, expected = tuple(inputs[-1].shape), tuple(inputs[0].shape)
            raise InputError(
                f"{what} item {index} has input shape {found_shape}, expected {expected}; resize or crop it"
            )
    return Items(torch.stack(inputs), labels, _class_names(dataset, label))


def _pair(item: Any, what: str, input: str | None, label: str | None) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        return _under(item, input, INPUTS, f"{what}, input="), _under(item, label, LABELS, f"{what}, label=")
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise InputError(f"{what} is a {type(item).__name__}, expected a pair (input, label) or a mapping with both")
    return item[0], item[1]


def _under(item: Mapping[str, Any], name: str | None, usual: Sequence[str], what: str) -> Any:
    key = name if name is not None else next((known for known in usual if known in item), None)
    if key is None:
        raise InputError(
            f"{what}: the keys are {', '.join(map(str, item))}, expected one of {', '.join(usual)}; name yours"
        )
    if key not in item:
        raise unknown(f"key of {what}", key, map(str, item))
    return item[key]


def _input(value: Any, what: str) -> Tensor:
    """A PIL image as (C, H, W) in [0, 1], of 8 or 16 bits, one channel or three; arrays and lists of numbers as they
    are.
    """
    if hasattr(value, "getbands"):
        if value.mode.startswith("I;16"):
            return torch.from_numpy(np.array(value).astype(np.float32))[None] / 65535
        if value.mode in ("I", "F"):
            raise InputError(
                f"{what} has an image of mode {value.mode}, of unknown range, expected 8 or 16 bits; add a transform"
            )
        image = value if value.mode in ("L", "RGB") else value.convert("L" if value.mode == "1" else "RGB")
        pixels = torch.from_numpy(np.array(image))
        return (pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)).float() / 255
    if not isinstance(value, Tensor | np.ndarray | list | tuple | int | float):
        kind = type(value).__name__
        raise InputError(f"{what} has inputs of type {kind}, expected tensors, arrays or images; add a transform")
    return float_tensor(value, f"{what} inputs")  # type: ignore[arg-type]


def _label(value: Any, what: str) -> Any:
    """One number or text."""
    if isinstance(value, str):
        return value
    found = torch.as_tensor(value) if isinstance(value, Tensor | np.ndarray | np.generic | int | float) else None
    if found is None or found.numel() != 1:
        size = f"{found.numel()} labels" if found is not None else f"the label {type(value).__name__}"
        raise InputError(f"{what} has {size}, expected one label, a number or a text; choose one with a transform")
    return found.item()


def _class_names(dataset: Any, label: str | None) -> tuple[str, ...]:
    """`classes`, as torchvision has it, or `features[label].names`, as Hugging Face has it; also of a Subset's dataset."""
    whole = getattr(dataset, "dataset", dataset)
    features = getattr(whole, "features", None)
    if isinstance(features, Mapping):
        key = label or next((known for known in LABELS if known in features), None)
        return tuple(getattr(features.get(key), "names", None) or ())
    classes = getattr(whole, "classes", ())
    return tuple(map(str, classes)) if isinstance(classes, list | tuple) else ()


def _targets(labels: list[Any], names: Sequence[tuple[str, ...]]) -> tuple[Tensor, tuple[str, ...]]:
    """Labels as numbers, and the names of the classes where all Datasets say the same, one for each."""
    texts = {isinstance(label, str) for label in labels}
    if texts == {True, False}:
        raise InputError("some labels are texts and some are numbers, expected one kind; convert them")
    if texts == {True}:
        known = tuple(sorted(set(labels)))
        place = {name: number for number, name in enumerate(known)}
        return torch.tensor([place[label] for label in labels]), known
    agreed = names[0] if len(set(names)) == 1 and max(labels) < len(names[0]) else ()
    return torch.tensor(labels), agreed
