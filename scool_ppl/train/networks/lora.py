"""Language models whose body is frozen and common: clients train, send and mix low-rank adapters of its attention (LoRA).

    W x becomes W x + (alpha / rank) B A x,   A (rank, inputs) random, B (outputs, rank) zero at first    (Hu et al., 2022)

Models are those of `transformers`, adapters those of `peft`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from logging import getLogger
from pathlib import Path

import torch
from torch import Tensor, nn

from scool_ppl.base.arguments import positive, whole
from scool_ppl.errors import InputError

PREFIX = "lora"
_UNITS, _HEADS = 64, 2


class Adapted(nn.Module):
    """Tokens (B, T) -> scores of the next one (B, T, vocabulary); all but the adapter needs no gradient."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.model(input_ids=tokens, use_cache=False).logits
        return scores


def lora(
    input_shape: Sequence[int],
    outputs: int,
    *,
    body: str | None = None,
    rank: int = 8,
    alpha: float = 16.0,
    layers: int = 2,
    width: float = 1.0,
) -> nn.Module:
    """`body`: a model of `transformers` by folder or name; without one a GPT-2 is made, with `layers` layers of
    64 * `width` units and random weights.
    """
    if not (whole(rank) and positive(alpha)):
        raise InputError(f"rank={rank}, alpha={alpha}: expected a whole number of at least 1 and a positive number")
    model = _made(outputs, input_shape[0], layers, width) if body is None else _loaded(body, outputs, input_shape[0])
    return Adapted(_adapted(_without_noise(model), rank, alpha))


def split(name: str) -> tuple[str, tuple[str, ...]]:
    """The body of `lora:BODY:key=value,...`, "" for none, and its options."""
    rest = name.partition(":")[2]
    body, _, options = rest.rpartition(":")
    if "=" not in options:
        body, options = rest, ""
    return body, tuple(filter(None, options.split(",")))


def _made(vocabulary: int, length: int, layers: int, width: float) -> nn.Module:
    if not (whole(layers) and positive(width)):
        raise InputError(f"layers={layers}, width={width}: expected a whole number of at least 1 and a positive number")
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=length,
        n_embd=_HEADS * max(1, round(_UNITS // _HEADS * width)),
        n_layer=layers,
        n_head=_HEADS,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="eager",  # others have no rule for vmap
    )
    model: nn.Module = GPT2LMHeadModel(config)
    return model


def _loaded(body: str, vocabulary: int, length: int) -> nn.Module:
    from transformers import AutoModelForCausalLM

    place = os.path.expanduser(body)
    if not Path(place).is_dir() and (place.count("/") > 1 or place.startswith((".", "/"))):
        raise InputError(
            f"network 'lora:{body}': there is no such folder, expected one that save_pretrained has written"
        )
    try:
        with _quietly():
            model = AutoModelForCausalLM.from_pretrained(
                place, local_files_only=Path(place).is_dir(), attn_implementation="eager", dtype=torch.float32
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:150]
        raise InputError(
            f"network 'lora:{body}' cannot be loaded ({reason}); expected a folder that save_pretrained has written, or a "
            "name that this machine can fetch"
        ) from error
    if model.config.vocab_size != vocabulary:
        raise InputError(
            f"network 'lora:{body}' has a vocabulary of {model.config.vocab_size} tokens, the federation one of "
            f"{vocabulary}; read the texts with the tokens that it was trained on, e.g. tokens={body}"
        )
    longest = getattr(model.config, "max_position_embeddings", length)
    if longest < length:
        raise InputError(f"network 'lora:{body}' takes {longest} tokens, the windows have {length}; lower length=")
    loaded: nn.Module = model
    return loaded


def _without_noise(model: nn.Module) -> nn.Module:
    """The same without dropout: adapters are small, and both executors agree."""
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return model


def _adapted(model: nn.Module, rank: int, alpha: float) -> nn.Module:
    from peft import LoraConfig, inject_adapter_in_model
    from transformers.pytorch_utils import Conv1D

    transposed = any(isinstance(part, Conv1D) for part in model.modules())
    config = LoraConfig(r=rank, lora_alpha=alpha, fan_in_fan_out=transposed)
    try:
        adapted: nn.Module = inject_adapter_in_model(config, model)
    except ValueError as error:
        raise InputError(
            f"no adapter fits this model ({' '.join(str(error).split())[:150]}); expected one whose attention peft knows"
        ) from error
    return adapted


@contextmanager
def _quietly() -> Iterator[None]:
    """No bar of progress and no word of the library beside our own."""
    from transformers.utils import logging

    level, bar, hub = logging.get_verbosity(), logging.is_progress_bar_enabled(), getLogger("huggingface_hub")
    before = hub.level
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub.setLevel("CRITICAL")
    try:
        yield
    finally:
        logging.set_verbosity(level)
        hub.setLevel(before)
        if bar:
            logging.enable_progress_bar()


def check_installed() -> None:
    """Raises InputError unless the libraries are there."""
    from importlib.util import find_spec

    for name in ("transformers", "peft"):
        if find_spec(name) is None:
            raise InputError(f"network 'lora' needs {name}, which is not installed; pip install 'scool_ppl[lora]'")
