"""Random numbers keyed by what they are for, so that no call depends on the order of other calls."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def seeded(seed: int | torch.Generator | None, device: torch.device = torch.device("cpu")) -> Iterator[None]:
    """Seeds torch's global generators inside and puts them back as they were; None leaves them alone.

    A generator gives a seed, its next draw.
    """
    if seed is None:
        yield
        return
    if isinstance(seed, torch.Generator):
        seed = int(torch.randint(2**62, (1,), generator=seed))
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        # torch.manual_seed would also reseed the devices that are not forked here.
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
