"""Random numbers keyed by what they are for, so that no call depends on the order of other calls."""

from __future__ import annotations

import hashlib
import operator

import torch

from scool_ppl.errors import InputError


def key(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose, e.g. ``key(0, "batches", round, client_name)``; equal inputs give equal keys."""
    try:
        seed = operator.index(seed)
    except TypeError as error:
        raise InputError(f"seed is {seed!r}, expected a whole number") from error
    digest = hashlib.blake2b(repr((seed, *purpose)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A fresh CPU generator for one purpose; the global generator is neither read nor moved."""
    return torch.Generator().manual_seed(key(seed, *purpose))
