"""What recipes divide, with classes that are known, and who got which of them, counted one by one."""

from __future__ import annotations

import torch

from scool_ppl.base.randomness import generator
from scool_ppl.data.recipes.splitting import Partition, Pool


def make_pool(per_class: int = 100, classes: int = 10, held_out: int = 20, seed: int = 0) -> Pool:
    """A shuffled pool with the same number of images of every class."""
    mixed = torch.randperm(per_class * classes, generator=generator(7, "labels"))
    train = torch.arange(classes).repeat_interleave(per_class)[mixed]
    test = torch.arange(classes).repeat(held_out)
    looks = torch.randn(classes, 16, generator=generator(7, "looks")) * 2
    inputs = [
        looks[y] + torch.randn(len(y), 16, generator=generator(7, "inputs", i)) for i, y in enumerate((train, test))
    ]
    return Pool(train, test, classes, generator(seed, "federation"), *inputs)


def counts(pool: Pool, partition: Partition) -> torch.Tensor:
    """(K, C) images of each class, training and validation together, counted one by one."""
    table = torch.zeros(len(partition.train), pool.num_classes, dtype=torch.long)
    for client, lists in enumerate(zip(partition.train, partition.validation, strict=True)):
        for rows in lists:
            for row in rows.tolist():
                table[client, pool.train_labels[row]] += 1
    return table
