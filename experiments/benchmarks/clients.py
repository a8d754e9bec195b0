"""Clients for benchmarks: the embedded digits, dealt to as many clients as asked for; images repeat across clients."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from scool_ppl import Federation

GROUPS, TRAIN, HELD_OUT = 4, 50, 10


def digits(size: int = 8) -> tuple[Tensor, Tensor]:
    """1,797 images of size x size and their labels."""
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
    if size != 8:
        images = torch.nn.functional.interpolate(images, size=(size, size), mode="bilinear")
    return images, torch.tensor(found.target)


def federation(num_clients: int, size: int = 8, train: int = TRAIN, test: int = TRAIN) -> Federation:
    """Four groups that permute the labels; `train` training, 10 validation and `test` test images a client."""
    images, labels = digits(size)
    random = torch.Generator().manual_seed(num_clients)
    names = torch.stack([torch.randperm(10, generator=random) for _ in range(GROUPS)])
    each = train + HELD_OUT + test
    rows = torch.stack([torch.randperm(len(images), generator=random)[:each] for _ in range(num_clients)])
    group = torch.arange(num_clients) * GROUPS // num_clients
    return Federation.from_arrays(
        images[rows.flatten()],
        names[group[:, None], labels[rows]].flatten(),
        torch.arange(num_clients).repeat_interleave(each),
        split=torch.tensor([0] * train + [1] * HELD_OUT + [2] * test).repeat(num_clients),
        groups=group,
        num_classes=10,
    )
