"""Account: what all that private clients have revealed says of any one of their images, by an accountant of a library.

At each step of training an image is in a batch with probability q, and its gradient moves a sum by at most C, to which
noise of sigma C is added: a sampled Gaussian mechanism. A release of losses is a Gaussian mechanism of all images, q = 1,
see `privacy.evidence`. Their Renyi divergences add up over steps and releases; of the sum Opacus finds epsilon.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.train.privacy.promise import Privacy

SPENT = "spent"
"""Entry of the memory, (K, 2): steps of private training and releases of losses that each client has made so far."""
STEPS = "private steps"
"""Entry of an optimiser's state, (K,) long: the steps alone, as clients are told and as they say them."""

Events = tuple[tuple[float, float, int], ...]
"""Mechanisms: noise in multiples of what one image can do, how probable it is that an image is there, and how often."""


class Account(NamedTuple):
    """What private clients promise, how many training images (K,) they have, and how many make a batch."""

    privacy: Privacy
    sizes: Tensor
    batch_size: int

    @classmethod
    def of(cls, privacy: Privacy, sizes: Tensor, batch_size: int) -> Account:
        """Of clients with so many training images (K,); where epsilon is finite, there must be an accountant."""
        if privacy.noise > 0 or privacy.evidence_noise:
            _accountant()
        return cls(privacy, sizes, batch_size)

    @property
    def rates(self) -> Tensor:
        """(K,): with which probability an image is in a batch."""
        return (self.batch_size / self.sizes.double().clamp(min=1)).clamp(max=1)

    def epsilon(self, spent: Tensor) -> Tensor:
        """Epsilon (K,) of what each client has spent (K, 2); infinite where something was revealed without noise, or
        batches were not drawn by Poisson sampling.
        """
        found = []
        for (steps, releases), rate in zip(spent.long().tolist(), self.rates.tolist(), strict=True):
            events: list[tuple[float, float, int]] = []
            if steps:
                events.append((self.privacy.noise if self.privacy.poisson else 0.0, rate, steps))
            if releases:
                events.append((self.privacy.evidence_noise or 0.0, 1.0, releases))
            found.append(_epsilon(tuple(events), self.privacy.delta))
        return torch.tensor(found, dtype=torch.float64)


def steps_made(state: dict[str, Tensor], num_clients: int) -> Tensor:
    """How many private steps each client has made so far, (K,) long, as the state of its optimiser says."""
    return state.get(STEPS, torch.zeros(num_clients, dtype=torch.long))


@cache
def _epsilon(events: Events, delta: float) -> float:
    if not events:
        return 0.0
    if any(noise == 0 for noise, _, _ in events):
        return math.inf
    accountant = _accountant()()
    accountant.history.extend(events)
    with warnings.catch_warnings():
        # Opacus says where its best order is the last that it tried: a bound still, if not the least.
        warnings.simplefilter("ignore", UserWarning)
        return float(accountant.get_epsilon(delta))


def _accountant() -> Any:
    """The accountant of Renyi differential privacy, of an optional library."""
    try:
        from opacus.accountants import RDPAccountant
    except ImportError as error:
        raise InputError(
            f"private training needs opacus, which cannot be imported ({error}); pip install 'scool_ppl[privacy]'"
        ) from error
    return RDPAccountant
