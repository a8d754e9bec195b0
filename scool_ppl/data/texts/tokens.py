"""Tokens: how a text becomes whole numbers, and how many there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scool_ppl.errors import InputError


class Tokens(NamedTuple):
    """text -> (N,) long, each below `vocabulary`."""

    encode: Callable[[str], Tensor]
    vocabulary: int


def tokens_of(name: str, texts: Sequence[str]) -> Tokens:
    """`bytes` of UTF-8, `characters` that some of the texts have, in their order, or those of a model of `transformers` by
    name or folder; what that has on this machine is enough.
    """
    if name == "bytes":
        return Tokens(lambda text: torch.tensor(list(text.encode()), dtype=torch.long), 256)
    if name == "characters":
        places = {letter: place for place, letter in enumerate(sorted(set().union(*texts)))}
        return Tokens(lambda text: torch.tensor([places[letter] for letter in text], dtype=torch.long), len(places))
    return _of_model(name)


def _of_model(name: str) -> Tokens:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise InputError(
            f"tokens={name} needs transformers, which cannot be imported ({error}); pip install 'scool_ppl[lora]', or say "
            "tokens=bytes or tokens=characters"
        ) from error
    place = os.path.expanduser(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, local_files_only=os.path.isdir(place))
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:150]
        raise InputError(
            f"tokens={name} is no tokenizer ({reason}); expected bytes, characters, or a model of transformers by name or "
            "folder"
        ) from error

    def encode(text: str) -> Tensor:
        return torch.tensor(tokenizer.encode(text, verbose=False, add_special_tokens=False), dtype=torch.long)

    return Tokens(encode, len(tokenizer))
