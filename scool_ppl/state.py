"""The data of a run: what a cooperation model is, how long clients train, the state of a round and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor

from scool_ppl.arguments import check_kind, whole
from scool_ppl.batches import Params
from scool_ppl.candidates import Peers
from scool_ppl.clients import Evaluation
from scool_ppl.errors import InputError
from scool_ppl.estep import EStep, NaturalGradient
from scool_ppl.graph import CooperationGraph
from scool_ppl.likelihoods import Likelihood
from scool_ppl.mixing import Mixing
from scool_ppl.peers import All, PeerPolicy
from scool_ppl.priors import GraphPrior
from scool_ppl.records import Row


class CooperationModel(NamedTuple):
    """One choice of each part: who may cooperate, what the evidence says of it, and what is done with the answer."""

    prior: GraphPrior
    likelihood: Likelihood
    mixing: Mixing
    peers: PeerPolicy = All()
    e_step: EStep = NaturalGradient()


@dataclass(frozen=True)
class Schedule:
    """How long clients train: `warmup_epochs` in the first round, before the graph is first looked at, then
    `local_epochs` a round; with `local_steps`, that many batches a round instead.
    """

    local_epochs: int = 5
    warmup_epochs: int = 40
    local_steps: int | None = None

    def __post_init__(self) -> None:
        steps = self.local_steps is None or whole(self.local_steps)
        if not whole(self.local_epochs, self.warmup_epochs, least=0) or not steps:
            raise InputError(
                f"local_epochs={self.local_epochs}, warmup_epochs={self.warmup_epochs}, "
                f"local_steps={self.local_steps}: expected epochs of at least 0 and steps of at least 1"
            )

    def epochs(self, round: int) -> int:
        """Epochs of a round, counted from 0."""
        return self.warmup_epochs if round == 0 else self.local_epochs


class EMState(NamedTuple):
    """Everything needed to continue; data only."""

    params: Params
    """theta^t, name -> (K, ...)."""
    start: Params
    """theta^0."""
    optimizer: Params
    """Buffers of the clients' optimisers."""
    moments: dict[str, Tensor]
    """E_q of each site after the last round: "Y" is the graph (K, M); empty before the first."""
    q: dict[str, Tensor]
    """Parameters of the guide."""
    prior: dict[str, Tensor]
    """Parameters of the prior."""
    peers: Peers | None
    """The candidates of the last round."""
    memory: dict[str, Tensor]
    """What policies, likelihoods and mixing rules remember."""
    round: int
    seed: int


class EMInfo(NamedTuple):
    """What a round did; nothing in it is needed to continue."""

    elbo: float
    """The bound on log P(D, Y, Z) after the E-step; rises within a round."""
    loss: float
    """Mean training loss of the clients; falls."""
    trained: Params
    """theta^{t+1/2}: the networks after local training, before mixing."""
    bytes_received: Tensor
    """(K,) what each client would receive in this round."""
    bytes_sent: Tensor
    """(K,) what each client would send."""
    seconds: dict[str, float]
    """Time of each verb: train, look, infer, mix."""
    quarantined: Mapping[str, str] = MappingProxyType({})
    """Clients left out of the round, and why."""


class Fit(NamedTuple):
    """The result of `EM.fit`."""

    graph: CooperationGraph
    history: list[Row]
    state: EMState
    evaluation: Evaluation
    """The mixed networks on the clients' test data."""
    trained: Evaluation
    """The same for the locally trained networks, before mixing."""


def check_state(state: EMState, prior: Params, num_clients: int) -> None:
    """Raises InputError unless the state is of this many clients and of a prior with these parameters."""
    check_kind("state", state, EMState, "take it from init, step, join or leave")
    found = {len(value) for value in state.params.values()}
    if found != {num_clients}:
        raise InputError(
            f"the state is of {sorted(found)} clients, expected {num_clients}; use the EM that it comes from"
        )
    for name, value in prior.items():
        old = state.prior.get(name)
        if old is None or old.shape != value.shape:
            shape = None if old is None else tuple(old.shape)
            raise InputError(
                f"the state's parameter '{name}' has shape {shape}, expected {tuple(value.shape)}; build the same model"
            )
