"""How exactly networks are computed: as their parameters are, or in bfloat16."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scool_ppl.errors import InputError

PRECISIONS = ("full", "bf16")


def in_bf16(module: nn.Module) -> nn.Module:
    """The module, of which forward and backward pass are in bfloat16 wherever `torch.autocast` finds that safe.

    Parameters, outputs, losses and the steps of the optimiser stay float32. Pays for convolutions on processors that have
    instructions for it.
    """
    kinds = {leaf.dtype for leaf in module.parameters()}
    if kinds != {torch.float32}:
        found = ", ".join(sorted(str(kind)[6:] for kind in kinds))
        raise InputError(f"precision='bf16' was given for a network of {found}, expected float32; leave dtype out")
    kind = type(module)

    def forward(self: nn.Module, inputs: Tensor) -> Any:
        # Every weight is used once: there is nothing that a cache of casts could save.
        with torch.autocast(inputs.device.type, torch.bfloat16, cache_enabled=False):
            return kind.forward(self, inputs).float()

    module.__class__ = type(f"{kind.__name__}InBF16", (kind,), {"forward": forward, "__module__": kind.__module__})
    return module
