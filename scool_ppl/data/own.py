"""The user's own data: labelled arrays, features from a pretrained network, folders of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from scool_ppl.base.arrays import float_tensor, long_tensor
from scool_ppl.base.randomness import generator
from scool_ppl.data.preparation import Scaling
from scool_ppl.data.reading import read_npz
from scool_ppl.data.recipes.splitting import stratified
from scool_ppl.errors import InputError

Channels = tuple[float, ...]


class Arrays(NamedTuple):
    """A dataset in memory: inputs, float32 vectors (N, D) or images (N, C, H, W), or images of bytes, a quarter of the
    memory, of which only those that are dealt become float32; and long targets (N,).

    class_names: what the classes are called, () where nobody says so. scaling: how the inputs of networks are made of those
    in the files, None where they are the same.
    """

    inputs_train: Tensor
    targets_train: Tensor
    inputs_test: Tensor
    targets_test: Tensor
    num_classes: int
    class_names: tuple[str, ...] = ()
    scaling: Scaling | None = None

    def ready(self, inputs: Tensor) -> Tensor:
        """Some of the inputs as networks get them, float32: bytes x become (x - mean_c) / std_c, other numbers are so."""
        if inputs.dtype != torch.uint8 or self.scaling is None:
            return inputs
        moments = (self.scaling.mean, self.scaling.std)
        mean, std = (torch.tensor(values, dtype=torch.float32).view(-1, 1, 1) for values in moments)
        return inputs.to(torch.float32, memory_format=torch.contiguous_format).sub_(mean).div_(std)


def labelled(path: str) -> Arrays:
    """The user's labelled arrays, see `read_arrays`; bytes are images to be standardised, other numbers stay."""
    return with_scaling(read_arrays(path))


def features(path: str) -> Arrays:
    """Features (N, D) of a pretrained network instead of images, (x - mean) / std of each dimension in training."""
    arrays = read_arrays(path)
    train, test = (inputs.flatten(1).double() for inputs in (arrays.inputs_train, arrays.inputs_test))
    mean, std = train.mean(0), train.std(0, correction=0)
    std = torch.where(std > 0, std, 1.0)
    return arrays._replace(
        inputs_train=((train - mean) / std).float(),
        inputs_test=((test - mean) / std).float(),
        scaling=Scaling(tuple(mean.tolist()), tuple(std.tolist()), of_bytes=False),
    )


def held_out(
    inputs: Tensor, targets: Tensor, count: int, random: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs and targets of the training part, then of `count` stratified rows for testing."""
    test = torch.zeros(len(targets), dtype=torch.bool)
    test[stratified(targets, count, random)] = True
    return inputs[~test], targets[~test], inputs[test], targets[test]


def channels_first(images: Tensor) -> Tensor:
    """Images as (N, C, H, W), from (N, H, W), (N, H, W, C) or (N, C, H, W) with 1, 3 or 4 channels."""
    if images.ndim == 3:
        return images.unsqueeze(1)
    if images.ndim == 4 and images.shape[1] not in (1, 3, 4) and images.shape[3] in (1, 3, 4):
        return images.permute(0, 3, 1, 2)
    return images


def with_scaling(arrays: Arrays, moments: tuple[Channels, Channels] | None = None) -> Arrays:
    """With (x / 255 - mean) / std per channel for bytes; moments: mean and std, else those of the training part."""
    train = arrays.inputs_train
    if train.dtype != torch.uint8:
        return arrays
    mean, std = (
        _moments(train) if moments is None else [255 * torch.tensor(values, dtype=torch.float32) for values in moments]
    )
    if len(mean) != train.shape[1]:
        raise InputError(f"the images have {train.shape[1]} channels, expected {len(mean)}; use other data")
    return arrays._replace(scaling=Scaling(tuple(mean.tolist()), tuple(std.tolist()), of_bytes=True))


def _moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (C,) of bytes by channel, from how often each value is there; 255 where all are equal."""
    often = torch.stack(
        [torch.bincount(images[:, c].flatten(), minlength=256) for c in range(images.shape[1])]
    ).double()
    values = torch.arange(256, dtype=torch.float64)
    share = often / often.sum(1, keepdim=True)
    mean = share @ values
    std = (share * (values - mean[:, None]).square()).sum(1).sqrt()
    return mean, torch.where((often > 0).sum(1) > 1, std, 255.0)


def read_arrays(path: str | Path) -> Arrays:
    """inputs and targets of an .npz file, and inputs_test and targets_test if they are there.

    Without a test part a fifth of the rows, with the label shares of all, is held out. Images of bytes (N, C, H, W),
    (N, H, W, C) or (N, H, W) are left bytes (N, C, H, W), other numbers become float32.
    """
    files = read_npz(path, ("inputs", "targets"), ("inputs_test", "targets_test"))
    train, targets = _part(files, "", path)
    if ("inputs_test" in files) != ("targets_test" in files):
        raise InputError(f"{path} has one of inputs_test and targets_test, expected both or neither; add the other")
    classes = 1 + int(targets.max())
    if "inputs_test" in files:
        test, targets_test = _part(files, "_test", path)
        classes = max(classes, 1 + int(targets_test.max()))
        if test.shape[1:] != train.shape[1:] or test.dtype != train.dtype:
            found, expected = (f"{part.dtype} of shape {tuple(part.shape[1:])}" for part in (test, train))
            raise InputError(f"{path} has inputs_test {found}, expected {expected} as in inputs; convert them")
    if classes > len(targets):
        raise InputError(f"{path} has labels up to {classes - 1} for {len(targets)} rows; number them from 0 on")
    if "inputs_test" in files:
        return Arrays(train, targets, test, targets_test, classes)
    return hold_out(train, targets, classes, path)


def hold_out(inputs: Tensor, targets: Tensor, classes: int, path: str | Path) -> Arrays:
    """A fifth of the rows for testing, the same ones at every reading."""
    if len(targets) < 2:
        raise InputError(f"{path} has 1 row, expected at least 2: one is held out for testing; add rows")
    return Arrays(*held_out(inputs, targets, max(1, len(targets) // 5), generator(0, "held-out")), classes)


def _part(files: Mapping[str, np.ndarray[Any, Any]], suffix: str, path: str | Path) -> tuple[Tensor, Tensor]:
    """Inputs, uint8 (N, C, H, W) or float32 (N, ...), and labels from 0 up, (N,)."""
    inputs, targets = files[f"inputs{suffix}"], long_tensor(files[f"targets{suffix}"], f"{path}: targets{suffix}")
    if inputs.ndim < 2 or targets.ndim != 1 or len(inputs) != len(targets) or len(targets) == 0:
        raise InputError(
            f"{path} has inputs{suffix} of shape {inputs.shape} and targets{suffix} of shape {tuple(targets.shape)}, "
            "expected (N, ...) and (N,) with at least one row"
        )
    if int(targets.min()) < 0:
        raise InputError(f"{path} has label {int(targets.min())} in targets{suffix}, expected 0 or more; renumber")
    if inputs.dtype != np.uint8:
        return float_tensor(inputs, f"{path}: inputs{suffix}"), targets
    if inputs.ndim == 2:
        raise InputError(f"{path} has bytes of shape {inputs.shape}, expected images (N, H, W) or floats; reshape")
    images = channels_first(torch.from_numpy(inputs))
    if images.ndim != 4 or images.shape[1] not in (1, 3, 4):
        raise InputError(f"{path} has images of shape {inputs.shape}, expected 1, 3 or 4 channels, first or last")
    return images, targets


def imagefolder(path: str, *, size: int = 64) -> Arrays:
    """A folder with a folder of images per class, or with such folders train and test (or val, where there is no test),
    resized to size x size.

    The shorter side becomes `size`, the middle is kept. Channels are standardised as in `labelled`.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        raise InputError(f"no folder {path}; expected one folder of images per class, or train and test with these")
    if size < 1:
        raise InputError(f"imagefolder has size={size}, expected at least 1 pixel")
    held_out = [root / name for name in ("test", "val", "valid", "validation")]
    parts = [root / "train", next(filter(Path.is_dir, held_out), held_out[0])]
    if not all(part.is_dir() for part in parts):
        images, targets, classes = _folder(root, size)
        return with_scaling(hold_out(images, targets, len(classes), path)._replace(class_names=tuple(classes)))
    (train, targets, classes), (test, targets_test, found) = (_folder(part, size) for part in parts)
    if strange := sorted(set(found) - set(classes)):
        raise InputError(f"{path} has class '{strange[0]}' in test but not in train, expected the same; rename it")
    number = torch.tensor([classes.index(name) for name in found])
    return with_scaling(Arrays(train, targets, test, number[targets_test], len(classes), tuple(classes)))


def _folder(root: Path, size: int) -> tuple[Tensor, Tensor, list[str]]:
    """Images (N, 3, size, size) as bytes, classes (N,), and their names."""
    from torchvision import datasets, transforms

    steps = transforms.Compose([transforms.Resize(size), transforms.CenterCrop(size), transforms.PILToTensor()])
    try:
        dataset = datasets.ImageFolder(root, transform=steps)
    except (OSError, RuntimeError) as error:
        raise InputError(f"{root} is no image folder ({' '.join(str(error).split())}); one folder per class") from error
    images = []
    for index, (file, _) in enumerate(dataset.samples):
        try:
            images.append(dataset[index][0])
        except (OSError, ValueError, SyntaxError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"cannot read the image {file} ({reason}); remove or repair it") from error
    return torch.stack(images), torch.tensor(dataset.targets), dataset.classes


READERS: dict[str, Callable[..., Arrays]] = {"features": features, "imagefolder": imagefolder}
"""What reads `prefix:path`."""
