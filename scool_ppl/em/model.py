"""A cooperation model, one choice of each part, and how long its clients train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from scool_ppl.base.arguments import whole
from scool_ppl.errors import InputError
from scool_ppl.infer.estep.base import EStep
from scool_ppl.infer.estep.natural import NaturalGradient
from scool_ppl.infer.priors.base import GraphPrior
from scool_ppl.look.evidence import Need
from scool_ppl.look.likelihoods import Likelihood
from scool_ppl.look.peers import All, PeerPolicy
from scool_ppl.mix.base import Mixing


class CooperationModel(NamedTuple):
    """One choice of each part: who may cooperate, what the evidence says of it, and what is done with the answer."""

    prior: GraphPrior
    likelihood: Likelihood
    mixing: Mixing
    peers: PeerPolicy = All()
    e_step: EStep = NaturalGradient()
    components: int = 0
    """Seats without data: networks that no client owns, candidates where the policy says so, see `look.Components`."""

    @property
    def needs(self) -> frozenset[Need]:
        """What prior and likelihood read of the evidence; nothing means that candidates' networks are not looked at."""
        return frozenset(self.prior.needs) | frozenset(self.likelihood.needs)


@runtime_checkable
class OwnDriver(Protocol):
    """A model that another driver than EM runs: EM(model, ...) makes one of that class."""

    @property
    def driver(self) -> type: ...


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
