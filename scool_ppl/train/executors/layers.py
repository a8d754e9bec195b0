"""Networks that are a row of plain layers, all of them at once: what vmap does with these, without the way through it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from scool_ppl.train.questions import Params

_ENTRYWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Identity)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def row_of_layers(module: nn.Module) -> Callable[[Params, Tensor], Tensor] | None:
    """Outputs (K, B, ...) of networks name -> (K, ...), each on its own inputs (K, B, ...): h_k W_k' + b_k layer by layer.

    None where the module is no Sequential of Flatten, then Linear and functions of single numbers, all trained: vmap runs
    that. The products and sums are those of vmap, so both give the same bits.
    """
    everything = module.named_modules(remove_duplicate=False)  # a layer may be there twice
    layers = [(name, layer) for name, layer in everything if name and "." not in name]
    first = layers[0][1] if layers else None
    plain = (
        isinstance(module, nn.Sequential)
        and type(module).forward is nn.Sequential.forward
        and type(first) is nn.Flatten
        and (first.start_dim, first.end_dim) == (1, -1)
        and all(type(layer) in (nn.Linear, *_ENTRYWISE) for _, layer in layers[1:])
        and all(leaf.requires_grad for leaf in module.parameters())
        and len(list(module.parameters())) == sum(len(list(layer.parameters())) for _, layer in layers)
        and not any(getattr(part, hooks) for part in module.modules() for hooks in _HOOKS)
    )
    if not plain:
        return None

    def outputs(params: Params, inputs: Tensor) -> Tensor:
        values = inputs.flatten(2)
        for name, layer in layers[1:]:
            if isinstance(layer, nn.Linear):
                values = values.bmm(params[f"{name}.weight"].mT)
                if layer.bias is not None:
                    values = values + params[f"{name}.bias"].unsqueeze(1)
            else:
                values = layer(values)
        return values

    return outputs
