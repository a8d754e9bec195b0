"""The data of a run: its state between two rounds, what a round did, and what came of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor

from scool_ppl.base.arguments import check_kind
from scool_ppl.base.codec import Row
from scool_ppl.base.describe import shown_html
from scool_ppl.base.statistics import over_clients
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.train.contract import AnyClients, Evaluation
from scool_ppl.train.questions import Ensemble, Params
from scool_ppl.train.round_start import Memory, Remembered


class EMState(NamedTuple):
    """Everything needed to continue; data only."""

    params: Params
    """theta^t, name -> (K, ...)."""
    initial: Params
    """theta^0, where the model needs it, else empty."""
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
    memory: Memory
    """What policies, likelihoods and mixing rules wanted remembered."""
    round: int
    seed: int
    beside: dict[str, EMState] = {}  # never changed
    """The states of the tracks that are trained beside this one, see `deploy.Portfolio`."""
    components: Params = {}  # never changed
    """Networks of the seats without data, name -> (G, ...)."""

    def __repr__(self) -> str:
        clients = len(next(iter(self.params.values()), ()))
        beside = f", beside {', '.join(self.beside)}" if self.beside else ""
        return f"EMState(round {self.round}, seed {self.seed}, {clients} clients{beside})"


class EMInfo(NamedTuple):
    """What a round did; nothing in it is needed to continue."""

    elbo: float
    """The bound on log P(D, theta) after the E-step, E_q log P(D, theta, Y, Z) - E_q log q(Y, Z); rises in a round."""
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
    epsilon: Mapping[str, float] | None = None
    """Of private clients, what each has spent so far, see `train.Account`."""

    def __repr__(self) -> str:
        out = f", without {', '.join(self.quarantined)}" if self.quarantined else ""
        return f"EMInfo(elbo {self.elbo:.2f}, loss {self.loss:.3f}, {sum(self.seconds.values()):.2f} seconds{out})"


class Deployment(NamedTuple):
    """What the clients ship: names of the candidates, and the ensemble of them that each client predicts with."""

    candidates: tuple[str, ...]
    ensemble: Ensemble

    def __repr__(self) -> str:
        shares = zip(self.candidates, self.weights.mean(0).tolist(), strict=True)
        return f"Deployment({len(self.weights)} clients, {', '.join(f'{name} {share:.0%}' for name, share in shares)})"

    def _repr_html_(self) -> str | None:
        return shown_html(self)

    @property
    def weights(self) -> Tensor:
        """(K, C): how much client i relies on candidate c; rows sum to one."""
        return self.ensemble.weights

    @property
    def chosen(self) -> bool:
        """Was there anything to choose from?"""
        return len(self.candidates) > 1

    def evaluate(self, clients: AnyClients, split: str = "test") -> Evaluation:
        """What is deployed, on the clients' own rows of a split."""
        return clients.evaluate(self.ensemble, split)


class Fit(NamedTuple):
    """The result of `EM.fit`."""

    graph: CooperationGraph
    history: list[Row]
    state: EMState
    evaluation: Evaluation
    """The mixed networks on the clients' test data."""
    trained: Evaluation
    """The same for the locally trained networks, before mixing."""
    deployment: Deployment
    """What each client ships."""
    deployed: Evaluation
    """That on the clients' test data; where there was nothing to choose from, the mixed networks."""
    deploying: float
    """Seconds that it took to find what each client ships."""

    def __repr__(self) -> str:
        score = f"{self.score_name} {over_clients(self.deployed.score).mean:.3f}"
        return f"Fit({self.state.round} rounds, {score} over clients, {self.graph!r})"

    def _repr_html_(self) -> str | None:
        return shown_html(self)

    @property
    def score_name(self) -> str:
        """What the task calls its score."""
        return str(self.history[-1].get("score", "score")) if self.history else "score"


def check_state(
    state: EMState, prior: Params, num_clients: int, needs_initial: bool = False, components: int = 0
) -> None:
    """Raises InputError unless the state is of this many clients and of a prior with these parameters."""
    check_kind("state", state, EMState, "take it from init, step, join or leave")
    found = {len(value) for value in state.params.values()}
    if found != {num_clients}:
        raise InputError(
            f"the state is of {sorted(found)} clients, expected {num_clients}; use the EM that it comes from"
        )
    there = {len(value) for value in state.components.values()} or {0}
    if there != {components}:
        raise InputError(
            f"the state has networks of {sorted(there)} components, expected {components}; use the EM that it comes from"
        )
    if needs_initial and not state.initial:
        raise InputError("the state has no theta^0, which this model needs; begin with a state of its own, from init()")
    for name, value in prior.items():
        old = state.prior.get(name)
        if old is None or old.shape != value.shape:
            shape = None if old is None else tuple(old.shape)
            raise InputError(
                f"the state's parameter '{name}' has shape {shape}, expected {tuple(value.shape)}; build the same model"
            )


def check_memory(memory: Mapping[str, Remembered], num_clients: int) -> None:
    """Raises InputError unless policy, likelihood and mixing rule returned what can be remembered."""
    for name, entry in memory.items():
        if not isinstance(entry, Remembered) or not isinstance(entry.value, Tensor):
            raise InputError(
                f"'{name}' is to be remembered as a {type(entry).__name__}, expected train.Remembered(tensor, axes)"
            )
        shape = tuple(entry.value.shape)
        if any(not 0 <= axis < len(shape) or shape[axis] != num_clients for axis in entry.axes):
            raise InputError(
                f"'{name}' is to be remembered with the axes {entry.axes} of clients and has shape {shape}, expected "
                f"{num_clients} along each of them; correct the axes"
            )
