"""Can clients train this network, and how does it behave?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from scool_ppl.base.randomness import seeded
from scool_ppl.errors import InputError


def examine(
    network: Callable[[], nn.Module],
    example: Tensor,
    output_shape: Sequence[int],
    dtype: torch.dtype | None = None,
    seed: int = 0,
) -> tuple[nn.Module, bool, int]:
    """A client's network of a dtype on the example's device; does training draw random numbers; its widest layer.

    The width is the largest number of elements that any module puts out per sample.

    Raises InputError unless it maps the example (B, ...) to (B, *output_shape) and only parameters change in training.
    """
    with seeded(seed, example.device):
        module = network()
        if not isinstance(module, nn.Module):
            raise InputError(f"network() gave a {type(module).__name__}, expected what builds a torch.nn.Module")
        module = module.to(example.device, dtype)
        for name, part in module.named_modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                raise InputError(
                    f"module '{name}' is a {type(part).__name__}, whose statistics mix the images of a batch; "
                    "expected none; use GroupNorm"
                )
        if not any(leaf.requires_grad for leaf in module.parameters()):
            raise InputError("the network has no trainable parameters, expected at least one")
        buffers = {name: value.clone() for name, value in module.named_buffers()}
        before, widths = _random_state(example.device), [example[0].numel()]

        def measure(part: nn.Module, arguments: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                widths.append(output.numel() // len(example))

        hooks = [part.register_forward_hook(measure) for part in module.modules()]
        try:
            outputs = module.train()(example)
        except (RuntimeError, ValueError) as problem:
            line = str(problem).splitlines()[0]
            raise InputError(
                f"the network does not take the federation's inputs of shape {tuple(example.shape[1:])}: {line}; "
                "build it with network_for(input_shape, outputs)"
            ) from problem
        finally:
            for hook in hooks:
                hook.remove()
        random = not torch.equal(before, _random_state(example.device))
    if tuple(outputs.shape) != (len(example), *output_shape):
        raise InputError(
            f"the network's outputs have shape {tuple(outputs.shape)} for {len(example)} samples, expected "
            f"{(len(example), *output_shape)}: one column per class, or what else the federation's task expects"
        )
    for name, value in module.named_buffers():
        if not torch.equal(value, buffers[name]):
            raise InputError(f"buffer '{name}' changes in training, expected parameters only; use GroupNorm")
    return module, random, max(widths)


def _random_state(device: torch.device) -> Tensor:
    cpu = torch.get_rng_state()
    return torch.cat([cpu, torch.cuda.get_rng_state(device)]) if device.type == "cuda" else cpu
