"""Files of tensors, as safetensors; those of stacks that ranks share are written and read in pieces."""

from __future__ import annotations

import json
import re
from pathlib import Path

import safetensors.torch
import torch
from safetensors import safe_open

from scool_ppl.base.codec import Tensors
from scool_ppl.graph.stacks import is_shared, pieces, rows_here, shared

KINDS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
         torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}  # fmt: skip
"""What safetensors calls the types of numbers."""

STACK = re.compile(r"state(/beside/[^/]+)*/(params|initial|optimizer)/")
"""How names of a checkpoint begin that are of stacks: networks, and buffers of their optimisers."""


def sent(tensors: Tensors) -> bool:
    """Where ranks share some of them, and another rank writes: sends it this one's rows."""
    if not any(is_shared(value) and value.device_mesh.get_rank() != 0 for value in tensors.values()):
        return False
    for _, value in _in_order(tensors):
        for _ in pieces(value):
            pass
    return True


def save(path: Path, tensors: Tensors) -> None:
    """Write the file; of shared stacks what `sent` sends."""
    if not any(is_shared(value) for value in tensors.values()):
        path.touch()
        mode = path.stat().st_mode
        safetensors.torch.save_file(tensors, path)
        path.chmod(mode)  # safetensors lets nobody else read it
        return
    header, end = {}, 0
    for name, value in _in_order(tensors):
        start, end = end, end + value.numel() * value.element_size()
        header[name] = {"dtype": KINDS[value.dtype], "shape": list(value.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, value in _in_order(tensors):
            for _, rows in pieces(value):
                file.write(rows.contiguous().flatten().view(torch.uint8).numpy().data)


def load(path: Path, like: torch.Tensor) -> Tensors:
    """The tensors of a checkpoint's file, of its stacks the rows that of the stack `like` are here."""
    here, _ = rows_here(like)
    found: Tensors = {}
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  it is no mapping
            part = file.get_slice(name)
            if STACK.match(name) and part.get_dtype() != "BOOL" and part.get_shape()[:1] == [len(like)]:
                found[name] = shared(part[here.start : here.stop], len(like), like.device_mesh)  # type: ignore[attr-defined]
            else:
                found[name] = file.get_tensor(name)
    return found


def _in_order(tensors: Tensors) -> list[tuple[str, torch.Tensor]]:
    """Large numbers first, so that each begins where its type may."""
    return sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
