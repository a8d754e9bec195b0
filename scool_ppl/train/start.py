"""Turn: where a round stands when it begins; what peer policies and mixing rules may look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from scool_ppl.base.randomness import generator
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.batches import Batches
from scool_ppl.train.contract import Params, Pull
from scool_ppl.train.faults import check_training

if TYPE_CHECKING:
    from scool_ppl.train.clients import Clients
    from scool_ppl.train.contract import Trained


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
    """What policies, likelihoods and mixing rules remember; this round's own copy, entries may be replaced. An entry is of
    clients, (K, ...), or pairs, (K, K, ...), NaN where nothing is known; or its name begins with global/."""
    includes_self: bool
    epochs: int
    steps: int | None
    round: int
    """Counted from 0."""
    seed: int
    absent: tuple[int, ...] = ()
    """Clients who sit this round out."""

    @property
    def num_clients(self) -> int:
        return self.clients.num_clients

    @property
    def present(self) -> Tensor:
        """Who takes part, (K,) bool."""
        present = torch.ones(self.num_clients, dtype=torch.bool)
        present[list(self.absent)] = False
        return present

    def batches(self) -> Batches:
        """Every client's own batches of the round's local training."""
        return self.clients.batches(epochs=self.epochs, steps=self.steps, seed=self.seed, round=self.round)

    def train(
        self,
        params: Params,
        optimizer: Params | None = None,
        *,
        pull: Pull | None = None,
        batches: Batches | None = None,
    ) -> Trained:
        """Local training, in which the absent do not move; a client whose training broke is a ClientError."""
        batches = self.batches() if batches is None else batches
        if self.absent:
            batches = batches._replace(weight=batches.weight.index_fill(0, torch.tensor(self.absent), 0))
        trained = self.clients.train(
            params,
            optimizer,
            epochs=self.epochs,
            steps=self.steps,
            seed=self.seed,
            round=self.round,
            pull=pull,
            batches=batches,
        )
        check_training(trained, batches.active.any(1), self.present, self.clients.names)
        return trained

    def generator(self, *purpose: str | int) -> torch.Generator:
        """Randomness for a purpose in this round."""
        return generator(self.seed, *purpose, self.round)
