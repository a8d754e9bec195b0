"""A cooperation model, one choice of each part; which clients it is for, and how long they train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from scool_ppl.base.arguments import check_kind, whole
from scool_ppl.data.federation import Federation
from scool_ppl.errors import InputError
from scool_ppl.infer.estep.base import EStep
from scool_ppl.infer.estep.natural import NaturalGradient
from scool_ppl.infer.priors.base import GraphPrior
from scool_ppl.look.evidence import OF_GRADIENTS, Need, check_needs
from scool_ppl.look.leaks import check_leaks
from scool_ppl.look.likelihoods import Likelihood
from scool_ppl.look.peers import All, PeerPolicy
from scool_ppl.mix.base import Mixing
from scool_ppl.train.contract import CONTRACT, AnyClients, lacking
from scool_ppl.train.demands import check_demands


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

    @property
    def demands(self) -> frozenset[str]:
        """What it asks of clients beyond rounds of their own training."""
        asked = {"gradients": not self.needs.isdisjoint(OF_GRADIENTS), "components": self.components > 0}
        own = frozenset(self.prior.demands) | frozenset(self.mixing.demands)
        return own | {demand for demand, there in asked.items() if there}


@runtime_checkable
class OwnDriver(Protocol):
    """A model that another driver than EM runs: EM(model, ...) makes one of that class."""

    @property
    def driver(self) -> type: ...


Build = Callable[[Federation], CooperationModel | OwnDriver]
"""What makes the model of a federation, or what has a driver of its own."""


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


def check_clients(clients: object) -> None:
    """Refuses what does not keep the contract of clients, and says what it lacks."""
    missing = lacking(clients)
    if missing:
        lacks = "" if 2 * len(missing) > len(CONTRACT) else f", it lacks {', '.join(missing)} of train.AnyClients"
        raise InputError(
            f"clients is a {type(clients).__name__}, expected Clients{lacks}; Clients(federation) makes them"
        )


def check_model(model: CooperationModel, clients: AnyClients) -> None:
    """Refuses a model whose parts are no such parts, or which is not for these clients."""
    kinds = {"prior": GraphPrior, "likelihood": Likelihood, "mixing": Mixing, "peers": PeerPolicy}
    for name, kind in kinds.items():
        check_kind(f"{name} of the model", getattr(model, name), kind, "subclass it, or take one of the library's")
    check_kind("e_step of the model", model.e_step, Callable, "e.g. NaturalGradient()")  # type: ignore[arg-type]
    for part in (model.prior, model.likelihood):
        check_needs(part.needs)
    if model.prior.num_clients != clients.num_clients:
        raise InputError(
            f"the model is for {model.prior.num_clients} clients, the federation has {clients.num_clients}; "
            f"build the model with num_clients={clients.num_clients}"
        )
    check_demands(clients.refused, model.demands)
    if clients.account is not None:
        check_leaks(model.needs, clients.account.privacy)
