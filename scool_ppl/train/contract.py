"""The contract of clients: what the rest of the library may ask of them, wherever they live."""

from __future__ import annotations

import copy
from abc import ABCMeta
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from scool_ppl.base.describe import shown_html
from scool_ppl.base.statistics import over_clients
from scool_ppl.data.federation import Federation
from scool_ppl.data.roster import Roster
from scool_ppl.graph.candidates import Peers, not_finite
from scool_ppl.train.demands import Demand
from scool_ppl.train.networks.parts import Parts
from scool_ppl.train.privacy.account import Account
from scool_ppl.train.questions import Ensemble, Mixture, Params, Predictor, Question

Facts = dict[str, list[str]]
"""What clients are made of, as texts by name: a run goes on only with clients of whom all of them are the same."""


BEHAVIOUR = "behaviour of the clients"
"""The fact that says what clients do beside what they are asked: a line for each wrapper, from the inside."""


class Pull(NamedTuple):
    """A proximal term: adds strength_i (theta_i - centre_i) to client i's gradient at every step; strength (K,)."""

    centre: Params
    strength: Tensor


class Coupling(NamedTuple):
    """A pull between clients: adds sum_j weights_ij (theta_i - theta_j) to client i's gradient at every step, theta_j being
    where the sender is at that step; weights (K, M) of the candidates `peers`; names: of which parameters, None for all.

    Clients in this process take their steps together. Clients who cannot see one another's networks within a round, as
    those who live elsewhere or are hostile, hold all theta_j where the round began, `held(theta^t)`. With one step a
    round that is the same; with many it pulls back to the beginning, the more the stronger the pull.
    """

    weights: Tensor
    peers: Peers
    names: tuple[str, ...] | None = None

    def held(self, params: Params, before: Pull | None = None) -> Pull:
        """The pull towards these networks; one that is not finite pulls nobody. before: an earlier one that nobody needs
        any more, whose memory is used.
        """
        params = params if self.names is None else {name: params[name] for name in self.names}
        broken = [found.cpu() for value in params.values() if (found := not_finite(value.flatten(1))) is not None]
        peers = self.peers.among(~torch.stack(broken).any(0)) if broken else self.peers
        weights = torch.where(peers.mask, self.weights, torch.zeros_like(self.weights))
        total = weights.sum(1)
        share = weights / total.clamp(min=1e-30)[:, None]
        memory = {} if before is None else before.centre
        centre = {
            name: peers.combine(share, value, out=memory.get(name), finite=not broken) for name, value in params.items()
        }
        return Pull(centre, total.to(next(iter(centre.values()))))


class Shares(NamedTuple):
    """Whose data count: client i descends own_i L(D_i; theta_i) + sum_j others_ij L(D_j; theta_i) at every step.

    others: (K, K) with a zero diagonal, own: (K,). With `sampled` one j is drawn for each step with probability
    others_ij / sum_l others_il, and weighted by that sum.
    """

    others: Tensor
    own: Tensor
    sampled: bool = False


class Plan(NamedTuple):
    """One round of local training: so many epochs, or exactly `steps` batches, shuffled by seed and round.

    absent: positions of clients who sit it out; neither their networks nor their optimisers move. pull and shares are
    what a mixing rule adds; without shares everybody learns from its own data. importance: (K, n), how much the n-th
    training image of each client counts, None for one; images behind the table count what the client's do on average.
    """

    epochs: int = 1
    steps: int | None = None
    seed: int = 0
    round: int = 0
    absent: tuple[int, ...] = ()
    pull: Pull | Coupling | None = None
    shares: Shares | None = None
    importance: Tensor | None = None

    @property
    def demands(self) -> set[Demand]:
        """What it asks beyond rounds of everybody's own training."""
        asked: dict[Demand, bool] = {
            "lock step": isinstance(self.pull, Coupling),
            "others' data": self.shares is not None,
            "several networks": self.importance is not None,
        }
        return {demand for demand, there in asked.items() if there}


class Trained(NamedTuple):
    """What local training came to.

    params and optimizer_state: name -> (K, ...), e.g. "momentum_buffer/0.weight". While some clients have not moved yet,
    optimizer_state also has "started" (K,) bool: who has state at all. loss: (K,), of each client's last epoch, nan
    without images. moved: (K,) bool, who took a step.
    """

    params: Params
    optimizer_state: Params
    loss: Tensor
    moved: Tensor


class Evaluation(NamedTuple):
    """Per client (K,), nan without images: the task's score (of classification its accuracy), the same where the client
    chooses among its own classes only, and the mean loss.
    """

    score: Tensor
    task_score: Tensor
    loss: Tensor

    @classmethod
    def none(cls, num_clients: int) -> Evaluation:
        """That of a round in which nobody was asked."""
        return cls(*torch.full((3, num_clients), torch.nan))

    def __repr__(self) -> str:
        score, loss = over_clients(self.score), over_clients(self.loss)
        return f"Evaluation({len(self.score)} clients, score {score.mean:.3f} ± {score.std:.3f}, loss {loss.mean:.3f})"

    def _repr_html_(self) -> str | None:
        return shown_html(self)


if TYPE_CHECKING:
    _Meta = ABCMeta
else:
    _Meta = type(Protocol)


class _Contract(_Meta):
    """Who keeps the contract is seen from what it has, without asking: a property such as `federation` may raise."""

    def __instancecheck__(self, instance: object) -> bool:
        return not lacking(instance)


@runtime_checkable
class AnyClients(Protocol, metaclass=_Contract):
    """Clients in this process, hostile ones, or clients elsewhere: the driver knows no more of them than this.

    Networks go in and come out as stacked tensors, nothing is kept between calls. Whoever cannot take part in a round is
    reported by `errors.ClientError({name: reason})`, from `train` or `answer`; the round begins again without them.
    """

    @property
    def roster(self) -> Roster:
        """Who takes part, without their data: all that a round needs to know."""

    @property
    def federation(self) -> Federation:
        """Who has which data; an InputError where these are elsewhere."""

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' names, all different."""

    @property
    def num_clients(self) -> int: ...

    @property
    def parts(self) -> Parts:
        """Which parameters cooperate, and which do not."""

    @property
    def bytes_per_model(self) -> int:
        """Size of what is sent of one network: the parameters that cooperate."""

    @property
    def carried(self) -> int | None:
        """Bytes that have travelled to clients who are elsewhere and back so far; None where nothing travels."""

    @property
    def account(self) -> Account | None:
        """Of private clients, what they promise; None of others."""

    @property
    def refused(self) -> Mapping[Demand, str]:
        """What no model may ask of them: demand -> why, and what to do, to follow "this model trains on others' data, "."""

    @property
    def executor_name(self) -> str:
        """How the clients are run: the last bits of a result depend on it."""

    def use_executor(self, name: str) -> None:
        """Use the executor that an earlier run chose, instead of choosing anew: its rounding is that of the run."""

    def init(self, seed: int) -> Params:
        """theta^0, name -> (K, ...)."""

    def away(self, round: int) -> Mapping[str, str]:
        """Who is known to sit a round out, and why: name -> reason. `EM.fit` asks before the round begins."""

    def train(self, params: Params, optimizer_state: Params | None, plan: Plan) -> Trained:
        """Local training from `params`, every client on its own data, and what else the plan says.

        Clients who see one another only between rounds may take a plan's `Coupling` for what it holds at `params`.
        """

    def answer(self, questions: Mapping[str, Question], *, seed: int, round: int) -> dict[str, Tensor]:
        """The answers to all questions of a round, in one exchange; on probes that seed and round determine."""

    def evaluate(self, params: Params | Ensemble, split: str = "test", mixture: Mixture | None = None) -> Evaluation:
        """Every client's network, mixture of networks or ensemble of these on its own rows of a split."""

    def evaluations(self, predictors: Sequence[Predictor], split: str = "test") -> tuple[Evaluation, ...]:
        """What `evaluate` says of each of these, asked for at once."""

    def predict(
        self, params: Params | Ensemble, split: str = "test", mixture: Mixture | None = None
    ) -> tuple[Tensor, Tensor]:
        """Outputs (K, n, ...) of every client's network, mixture or ensemble on its own rows of a split, mask (K, n)."""

    def facts(self) -> Facts:
        """What the clients are made of."""

    def for_federation(self, federation: Federation) -> Self:
        """The same networks, optimiser and behaviour for the clients of another federation, with data of this kind."""


CONTRACT = frozenset(name for name in vars(AnyClients) if not name.startswith("_"))
"""The names of all that clients have."""


def lacking(clients: object) -> list[str]:
    """What of the contract of clients an object does not have."""
    own = getattr(clients, "__dict__", ())
    return sorted(name for name in CONTRACT if not hasattr(type(clients), name) and name not in own)


class Wrapper:
    """Clients around others: everything is passed on to `clients`; a subclass changes what it is about."""

    def __init__(self, clients: AnyClients) -> None:
        self.clients = clients

    @property
    def roster(self) -> Roster:
        return self.clients.roster

    @property
    def federation(self) -> Federation:
        return self.clients.federation

    @property
    def names(self) -> tuple[str, ...]:
        return self.clients.names

    @property
    def num_clients(self) -> int:
        return self.clients.num_clients

    @property
    def parts(self) -> Parts:
        return self.clients.parts

    @property
    def bytes_per_model(self) -> int:
        return self.clients.bytes_per_model

    @property
    def carried(self) -> int | None:
        return self.clients.carried

    @property
    def account(self) -> Account | None:
        return self.clients.account

    @property
    def refused(self) -> Mapping[Demand, str]:
        return self.clients.refused

    @property
    def executor_name(self) -> str:
        return self.clients.executor_name

    def use_executor(self, name: str) -> None:
        self.clients.use_executor(name)

    def init(self, seed: int) -> Params:
        return self.clients.init(seed)

    def away(self, round: int) -> Mapping[str, str]:
        return self.clients.away(round)

    def train(self, params: Params, optimizer_state: Params | None, plan: Plan) -> Trained:
        return self.clients.train(params, optimizer_state, plan)

    def answer(self, questions: Mapping[str, Question], *, seed: int, round: int) -> dict[str, Tensor]:
        return self.clients.answer(questions, seed=seed, round=round)

    def evaluate(self, params: Params | Ensemble, split: str = "test", mixture: Mixture | None = None) -> Evaluation:
        return self.clients.evaluate(params, split, mixture)

    def evaluations(self, predictors: Sequence[Predictor], split: str = "test") -> tuple[Evaluation, ...]:
        return self.clients.evaluations(predictors, split)

    def predict(
        self, params: Params | Ensemble, split: str = "test", mixture: Mixture | None = None
    ) -> tuple[Tensor, Tensor]:
        return self.clients.predict(params, split, mixture)

    def facts(self) -> Facts:
        """With what this wrapper does to the behaviour of the clients inside: its class, unless it says more."""
        inside = self.clients.facts()
        return {**inside, BEHAVIOUR: [*inside.get(BEHAVIOUR, []), type(self).__name__]}

    def for_federation(self, federation: Federation) -> Self:
        moved = copy.copy(self)
        moved.clients = self.clients.for_federation(federation)
        return moved
