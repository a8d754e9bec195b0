"""A group of ranks that has one member, this process: stacks are shared, and all of their rows are here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from scool_ppl.graph.stacks import mesh_of


@contextmanager
def only_rank() -> Iterator[Any]:
    """The mesh of a group with one rank."""
    from torch.distributed.tensor.experimental import implicit_replication

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with implicit_replication():
            yield mesh_of(1)
    finally:
        dist.destroy_process_group()
