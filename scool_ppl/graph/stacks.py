"""Stacks: tensors with a row for each client, (K, ...), such as all networks; of which every process may hold a part.

Where ranks of torchrun share a stack it is a `DTensor` of torch, cut along its rows: what is done to each row alone is
written as for any tensor. Here is what needs rows of others, a piece of the stack at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor

from scool_ppl.errors import RunError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

PIECE = 2**26
"""Bytes of a stack that are anywhere beside a process's own rows."""


def is_shared(stack: Tensor) -> TypeGuard[DTensor]:
    """Does each rank hold some rows of it only?"""
    return hasattr(stack, "device_mesh")  # the module of DTensor takes long to import


def part_of(count: int, rank: int, world: int) -> range:
    """The rows, of so many, that a rank holds: as torch cuts a tensor into chunks."""
    each = -(-count // world)
    return range(min(rank * each, count), min((rank + 1) * each, count))


def mesh_of(world: int) -> DeviceMesh:
    """So many ranks in a row, as torch's `DTensor` knows them."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (world,))
    # Caches of torch keep a mesh for good, and with it the group: its threads would be at work when Python ends, and abort.
    vars(mesh).get("_pg_registry", {}).clear()
    return mesh


def shared(rows: Tensor, count: int, mesh: DeviceMesh) -> Tensor:
    """The stack of `count` rows of which these are here."""
    from torch.distributed.tensor import DTensor, Shard

    rows = rows.contiguous()
    shape = torch.Size((count, *rows.shape[1:]))
    return DTensor.from_local(rows, mesh, [Shard(0)], run_check=False, shape=shape, stride=rows.stride())


def rows_here(stack: Tensor) -> tuple[range, Tensor]:
    """Which rows of a stack are here, and these."""
    if not is_shared(stack):
        return range(len(stack)), stack
    from torch.distributed.tensor import Shard

    mesh = stack.device_mesh
    return part_of(len(stack), mesh.get_rank(), mesh.size()), stack.redistribute(mesh, [Shard(0)]).to_local()


def unshared(values: Tensor) -> Tensor:
    """All rows, on every rank: for some numbers a client."""
    return carried(values.full_tensor) if is_shared(values) else values


def per_client(values: Tensor, stack: Tensor) -> Tensor:
    """One value a row, (K,), as it broadcasts with a stack (K, ...)."""
    return values.to(stack.device).view(-1, *(1,) * (stack.dim() - 1))


def pieces(stack: Tensor) -> Iterator[tuple[int, Tensor]]:
    """All rows, so many at a time: the place of the first, and the rows; every rank gets each piece from who holds it."""
    if not is_shared(stack):
        yield 0, stack
        return
    mesh, (here, own) = stack.device_mesh, rows_here(stack)
    most = max(1, PIECE // max(1, stack.shape[1:].numel() * stack.element_size()))
    for rank in range(mesh.size()):
        there = part_of(len(stack), rank, mesh.size())
        for start in range(there.start, there.stop, most):
            stop = min(start + most, there.stop)
            shape = (stop - start, *stack.shape[1:])
            mine = rank == mesh.get_rank()
            rows = own[start - here.start : stop - here.start].contiguous() if mine else own.new_empty(shape)
            carried(dist.broadcast, rows, src=rank)
            yield start, rows


def carried(call: Any, *arguments: Any, **options: Any) -> Any:
    """A message between ranks; that another process has died is one line."""
    try:
        return call(*arguments, **options)
    except RuntimeError as error:
        line = " ".join(str(error).split())
        raise RunError(f"another process of this run has died or is silent ({line[:120]})") from error
