"""Where a round stands when it begins: what peer policies and mixing rules may look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from scool_ppl.base.randomness import generator
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.contract import AnyClients, Coupling, Plan, Pull, Shares, Trained
from scool_ppl.train.faults import check_training
from scool_ppl.train.questions import Params


class Remembered(NamedTuple):
    """What a policy, a likelihood or a mixing rule wants to know again next round.

    axes: which axes of `value` are clients: (0,), (0, 1) for a matrix of pairs (K, K, ...), () for none. Entries of whom
    nothing is known are NaN.
    """

    value: Tensor
    axes: tuple[int, ...]


Memory = dict[str, Remembered]
"""By name. "joined" and "resting" are the driver's own."""


class RoundStart(NamedTuple):
    """The state at the beginning of a round; nothing in it is changed by who looks at it."""

    clients: AnyClients
    params: Params
    """theta^t, name -> (K, ...): the parameters that cooperate, which are all that others see."""
    initial: Params
    """theta^0 of these, where the model needs it, else empty."""
    peers: Peers | None
    """The last round's candidates, None before the first."""
    weights: Tensor | None
    """The last round's graph E_q[Y] (K, M); before the first round the prior's, where it has one, else None."""
    memory: Mapping[str, Remembered]
    """What policies, likelihoods and mixing rules returned to be remembered in the rounds before."""
    includes_self: bool
    epochs: int
    steps: int | None
    round: int
    """Counted from 0."""
    seed: int
    absent: tuple[int, ...] = ()
    """Clients who sit this round out."""
    private: Params = {}  # never changed
    """theta^t of the parameters that stay at home."""
    components: Params = {}  # never changed
    """Networks of the seats without data, name -> (G, ...)."""
    moments: dict[str, Tensor] = {}  # never changed
    """E_q of each site after the last round."""

    @property
    def networks(self) -> Params:
        """theta^t, whole."""
        return {**self.params, **self.private}

    @property
    def num_clients(self) -> int:
        return self.clients.num_clients

    @property
    def num_components(self) -> int:
        return len(next(iter(self.components.values()), ()))

    @property
    def graph(self) -> tuple[Tensor, Peers] | None:
        """The last `weights` with their `peers`, None where there is no graph yet."""
        return None if self.weights is None or self.peers is None else (self.weights, self.peers)

    @property
    def present(self) -> Tensor:
        """Who takes part, (K,) bool."""
        present = torch.ones(self.num_clients, dtype=torch.bool)
        present[list(self.absent)] = False
        return present

    @property
    def plan(self) -> Plan:
        """The round's local training."""
        return Plan(self.epochs, self.steps, self.seed, self.round, self.absent)

    def recall(self, name: str) -> Tensor | None:
        """What was remembered under a name, None if nothing was."""
        return self.memory[name].value if name in self.memory else None

    def train(
        self,
        params: Params,
        optimizer: Params | None = None,
        *,
        pull: Pull | Coupling | None = None,
        shares: Shares | None = None,
        importance: Tensor | None = None,
    ) -> Trained:
        """Local training, in which the absent do not move; a client whose training broke is a ClientError.

        Networks without what is private are completed by the clients' own, and come back without.
        """
        if isinstance(pull, Coupling) and self.private:
            pull = pull._replace(names=tuple(self.params))
        plan = self.plan._replace(pull=pull, shares=shares, importance=importance)
        trained = self.clients.train(
            {**params, **{n: v for n, v in self.private.items() if n not in params}}, optimizer, plan
        )
        check_training(trained, self.present, self.clients.names)
        return trained._replace(params={name: trained.params[name] for name in params})

    def generator(self, *purpose: str | int) -> torch.Generator:
        """Randomness for a purpose in this round."""
        return generator(self.seed, *purpose, self.round)
