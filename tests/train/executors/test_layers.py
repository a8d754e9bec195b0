"""Rows of plain layers without vmap: the bits that vmap gives, outputs and gradients, and nothing that is no such row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from scool_ppl.train.executors.layers import row_of_layers
from scool_ppl.train.networks.precision import in_bf16

SHAPE = (4, 4)
TWICE, TIED = nn.ReLU(), nn.Linear(7, 7)


def mlp(*middle: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 7), *middle, nn.Linear(7, 5))


def stacks(module: nn.Module, count: int, dtype: torch.dtype) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(count)
    return {
        name: torch.randn(count, *leaf.shape, generator=random, dtype=dtype).requires_grad_()
        for name, leaf in module.named_parameters()
    }


def vmapped(module: nn.Module, params: dict[str, Tensor], inputs: Tensor) -> Tensor:
    def call(params: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return torch.func.functional_call(module, params, (inputs,))

    return torch.func.vmap(call)(params, inputs)


@pytest.mark.parametrize("count", [1, 2, 30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(16, 5)),
        mlp(nn.ReLU()),
        mlp(nn.GELU(), nn.Linear(7, 7, bias=False), nn.Tanh()),
        mlp(TWICE, nn.Linear(7, 7), TWICE),
    ],
    ids=["linear", "relu", "deep", "a layer twice"],
)
def test_outputs_and_gradients_are_vmaps(module: nn.Sequential, dtype: torch.dtype, count: int) -> None:
    params = stacks(module, count, dtype)
    inputs = torch.randn(count, 10, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=dtype)
    direct = row_of_layers(module)
    assert direct is not None
    found, expected = direct(params, inputs), vmapped(module, params, inputs)
    assert torch.equal(found, expected)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(2), dtype=dtype)
    leaves = list(params.values())
    for one, other in zip(
        torch.autograd.grad(found, leaves, weights), torch.autograd.grad(expected, leaves, weights), strict=True
    ):
        assert torch.equal(one, other)


class Doubled(nn.Sequential):
    """Looks like a row of layers, and is more."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


class Shifted(nn.Linear):
    """A layer that only looks like a known one."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + 1


def hooked() -> nn.Module:
    module = mlp(nn.ReLU())
    module[1].register_forward_hook(lambda layer, inputs, outputs: 2 * outputs)
    return module


def partly_frozen() -> nn.Module:
    module = mlp(nn.ReLU())
    module[1].weight.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(16, 5),
        nn.Sequential(),
        nn.Sequential(nn.Linear(16, 5)),
        nn.Sequential(nn.Flatten(0), nn.Linear(16, 5)),
        mlp(nn.Dropout()),
        mlp(nn.LayerNorm(7)),
        Doubled(nn.Flatten(), nn.Linear(16, 5)),
        nn.Sequential(nn.Flatten(), Shifted(16, 5)),
        in_bf16(mlp(nn.ReLU())),
        nn.utils.parametrizations.weight_norm(mlp(nn.ReLU())[1]),
        mlp(TIED, TIED),
        hooked(),
        partly_frozen(),
    ],
)
def test_what_is_more_than_plain_layers_is_left_to_vmap(module: nn.Module) -> None:
    assert row_of_layers(module) is None
