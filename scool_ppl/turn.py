"""Turn: where a round stands when it begins; what peer policies and mixing rules may look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from scool_ppl.batches import Params
from scool_ppl.peers import Peers
from scool_ppl.randomness import generator

if TYPE_CHECKING:
    from scool_ppl.clients import Clients


class Turn(NamedTuple):
    """The state at the beginning of a round, with a memory that lasts from round to round."""

    clients: Clients
    params: Params
    """theta^t, name -> (K, ...)."""
    start: Params
    """theta^0."""
    peers: Peers | None
    """The last round's candidates, None before the first."""
    weights: Tensor | None
    """The last round's graph E_q[Y] (K, M); before the first round the prior's, where it has one, else None."""
    memory: dict[str, Tensor]
    """What policies, likelihoods and mixing rules remember; this round's own copy, entries may be replaced."""
    includes_self: bool
    epochs: int
    steps: int | None
    round: int
    """Counted from 0."""
    seed: int

    @property
    def num_clients(self) -> int:
        return self.clients.num_clients

    def generator(self, *purpose: str | int) -> torch.Generator:
        """Randomness for a purpose in this round."""
        return generator(self.seed, *purpose, self.round)
