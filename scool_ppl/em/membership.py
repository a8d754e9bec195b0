"""Membership: clients join and leave between rounds; whoever stays keeps, by name, all that is known of it."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from scool_ppl.base.arguments import check_kind, check_names
from scool_ppl.base.randomness import generator
from scool_ppl.data.federation import Federation
from scool_ppl.em.axes import Axes, Layout, learned_axes, parameter_layouts, site_layouts
from scool_ppl.em.em import EM
from scool_ppl.em.model import Build
from scool_ppl.em.state import EMState
from scool_ppl.errors import InputError, unknown
from scool_ppl.graph.candidates import Peers
from scool_ppl.look.evidence import BlankEvidence
from scool_ppl.look.leaks import warn_of_leaks
from scool_ppl.look.peers import JOINED, each_once, others_at_random
from scool_ppl.train.contract import AnyClients
from scool_ppl.train.executors.executor import STARTED, who_started, with_started
from scool_ppl.train.privacy.account import SPENT
from scool_ppl.train.privacy.counted import Counted
from scool_ppl.train.questions import PairLoss
from scool_ppl.train.round_start import Memory, Remembered

Values = dict[str, Tensor]
STARTS = ("best", "warm-up", "initial", "mean")
AT_ONCE = 2**22
"""So many pairs of a client who stays and a newcomer are asked about in one exchange."""


def join(em: EM, state: EMState, newcomers: Federation, build: Build, start: str = "best") -> tuple[EM, EMState]:
    """See EM.join."""
    em.check(state)
    federation = em.clients.federation.join(newcomers)
    if start not in (*STARTS, *em.clients.names):
        raise unknown("start", str(start), (*STARTS, *em.clients.names))
    moved = _rebuilt(em, federation, build)
    carried = _Move(em, state, moved).state()
    return moved, _started_newcomers(em, moved, carried, start)


def leave(em: EM, state: EMState, names: Collection[str], build: Build) -> tuple[EM, EMState]:
    """See EM.leave."""
    em.check(state)
    check_names("names", names)
    for name in names:
        if name not in em.clients.names:
            raise unknown("client", str(name), em.clients.names)
    stay = [place for place, name in enumerate(em.clients.names) if name not in names]
    if not stay or len(stay) == em.clients.num_clients:
        raise InputError(
            f"{len(names)} of {em.clients.num_clients} clients leave, expected one at least, and one to stay"
        )
    moved = _rebuilt(em, em.clients.federation.select(stay), build)
    return moved, _Move(em, state, moved).state()


def _rebuilt(em: EM, federation: Federation, build: Build) -> EM:
    check_kind("build", build, Callable, "write lambda federation: load_model(name, federation.num_clients)")  # type: ignore[arg-type]
    moved = EM(build(federation), em.clients.for_federation(federation), em.schedule, seed=em.seed)
    keep_frozen(em, moved)
    return moved


def keep_frozen(em: EM, moved: EM) -> None:
    """Freeze in an EM for other clients what is frozen in that of the last ones, as by a transfer."""
    prior, frozen = moved.model.prior, em.model.prior.frozen
    prior.freeze([name for name, _ in prior.named_parameters() if name.removesuffix("_unconstrained") in frozen])


def carried_over(old: Tensor, fresh: Tensor, axes: Axes, where: Tensor) -> Tensor:
    """`fresh` with the old entries of those who stay: where (K',) is their old place, -1 for newcomers."""
    if not axes:
        return old
    stay = (where >= 0).nonzero().flatten().to(old.device)
    here = where.to(old.device)[stay]
    own = carried_over(old.index_select(axes[0], here), fresh.index_select(axes[0], stay), axes[1:], where)
    return fresh.to(old).index_copy(axes[0], stay, own)


class _Move:
    """One state moved to the clients of another EM."""

    def __init__(self, em: EM, state: EMState, moved: EM) -> None:
        self.em, self.last, self.moved = em, state, moved
        self.fresh = moved.init()
        places = {name: place for place, name in enumerate(em.clients.names)}
        self.where = torch.tensor([places.get(name, -1) for name in moved.clients.names])
        self.size = len(self.where)
        begin = em.round_start(state)  # in which pairs that rested are awake
        self.peers, self.weights, self.memory = begin.peers, begin.weights, dict(begin.memory)
        self.table, self.reopened = self.peers is not None and self.peers.is_table, False
        self.sites: dict[str, Layout] = {}
        self.parameters: dict[str, Layout] = {}
        if self.peers is not None:
            prior = em.model.prior
            evidence = BlankEvidence(begin, self.peers, prior.needs)
            self.sites, self.parameters = site_layouts(prior, evidence), parameter_layouts(prior, evidence)

    def state(self) -> EMState:
        fresh, last = self.fresh, self.last
        peers, graph = fresh.peers, fresh.moments.get("Y")
        if self.peers is not None and self.weights is not None:
            peers, graph = self._graph(self.peers, self.weights)
        moments = self._moments({name: value for name, value in last.moments.items() if name != "Y"})
        return last._replace(
            params=self._params(last.params, fresh.params),
            initial=self._params(last.initial, fresh.initial),
            optimizer=self._optimizer(last.optimizer),
            moments=moments if graph is None else moments | {"Y": graph},
            q=self._q(last.q),
            prior=self._prior(last.prior),
            peers=peers,
            memory=self._memory(),
        )

    def _params(self, old: Values, fresh: Values) -> Values:
        return {name: carried_over(value, fresh[name], (0,), self.where) for name, value in old.items()}

    def _optimizer(self, old: Values) -> Values:
        """Buffers of those who stay; newcomers have none yet."""
        known = torch.cat([who_started(old, self.em.clients.num_clients).cpu(), torch.zeros(1, dtype=torch.bool)])
        buffers = {name: value for name, value in old.items() if name != STARTED}
        empty = {name: value.new_zeros(self.size, *value.shape[1:]) for name, value in buffers.items()}
        return with_started(self._params(buffers, empty), known[self.where])

    def _graph(self, peers: Peers, weights: Tensor) -> tuple[Peers, Tensor]:
        """The last graph and its candidates; everybody becomes a candidate anew where a table cannot be kept."""
        if peers.components:
            return self._with_components(peers, weights)
        table = self._table(peers)
        if table is not None:
            return table, carried_over(weights, weights.new_zeros(table.mask.shape), (0,), self.where)
        first = self.fresh.moments.get("Y")
        start = torch.zeros(self.size, self.size) if first is None else first
        if peers.is_table or (bool((self.where < 0).any()) and self.em.model.peers.begins_again):
            self.memory[JOINED] = Remembered(torch.tensor(self.last.round), ())
        if peers.is_table:
            self.reopened = True
            everybody = Peers.everybody(self.size, self.em.model.prior.includes_self)
            return everybody, carried_over(peers.dense(weights), start, (0, 1), self.where)
        # Where pairs keep what earlier looks have shown, nothing is known of a newcomer's before the first look.
        open_ = Peers.everybody(self.size, self.em.model.prior.includes_self).mask
        unknown_ = open_ if peers.looked is None or first is not None else torch.zeros_like(open_)
        mask = carried_over(peers.mask, unknown_, (0, 1), self.where)
        looked = (
            None if peers.looked is None else carried_over(peers.looked, torch.zeros_like(open_), (0, 1), self.where)
        )
        return Peers(mask, None, looked), carried_over(weights, start, (0, 1), self.where)

    def _with_components(self, peers: Peers, weights: Tensor) -> tuple[Peers, Tensor]:
        """Every component stays a candidate; newcomers use none before the first look."""
        size, components = self.size, peers.components
        shares = carried_over(peers.shares(weights), weights.new_zeros(size, components), (0,), self.where)
        direct = peers.without_components()
        if direct.mask.shape[1] == 0:
            return Peers.of_components(size, components), shares
        kept, own = self._graph(direct, peers.clients_of(weights))
        return kept.with_components(components), torch.cat([own.expand(kept.mask.shape), shares], 1)

    def _table(self, peers: Peers) -> Peers | None:
        """A table of peers without those who left; newcomers, and whoever would be left without any, have others at random.

        None if there are such, and the policy looks at all before it chooses among the last candidates.
        """
        if peers.senders is None:
            return None
        place = torch.full((self.em.clients.num_clients + 1,), -1)
        place[self.where] = torch.arange(self.size)  # that of newcomers is the last, of nobody
        place[-1] = -1
        own = torch.arange(self.size)[:, None]
        nobody = torch.full((self.size, peers.senders.shape[1]), -1)
        senders = carried_over(place[peers.senders], nobody, (0,), self.where)
        mask = carried_over(peers.mask, senders >= 0, (0,), self.where) & (senders >= 0)
        looked = None if peers.looked is None else carried_over(peers.looked, mask, (0,), self.where)
        senders = torch.where(senders < 0, own, senders)
        bare = (~mask.any(1)).nonzero().flatten()
        if len(bare):
            if self.em.model.peers.reads_last:
                return None
            found = self._at_random(bare, senders.shape[1])
            assert found.senders is not None
            senders, mask = senders.index_copy(0, bare, found.senders), mask.index_copy(0, bare, found.mask)
        return Peers(mask, senders, looked)

    def _at_random(self, clients: Tensor, count: int) -> Peers:
        """Candidates of these clients (n,), (n, count): others at random, and themselves where they may choose that."""
        random = generator(self.last.seed, "joined", self.last.round)
        senders = others_at_random(clients, count, self.size, random)
        if self.em.model.prior.includes_self:
            senders[:, 0] = clients
        return each_once(senders)

    def _moments(self, old: Values) -> Values:
        """E_q of sites, uniform for a newcomer where it is a probability."""
        found = {name: self._site(value, *self.sites.get(name, Layout((), 0.0))) for name, value in old.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _q(self, old: Values) -> Values:
        """Parameters of q, flat for a newcomer; a point mass on the graph begins as the prior says."""
        found = {}
        for name, value in old.items():
            axes, flat = self.parameters.get(name, Layout((), 0.0))
            found[name] = self._site(value, axes, self.fresh.moments.get(name, flat))
        return {name: value for name, value in found.items() if value is not None}

    def _site(self, old: Tensor, axes: Axes, start: Tensor | float) -> Tensor | None:
        """One tensor of a site; None for pairs of a table that cannot be kept, which start anew."""
        if len(axes) == 2 and self.table:
            if self.reopened:
                return None
            axes = axes[:1]
        sizes = [self.size if axis in axes else length for axis, length in enumerate(old.shape)]
        return carried_over(old, torch.as_tensor(start).to(old).expand(sizes), axes, self.where)

    def _prior(self, old: Values) -> Values:
        """What was learned goes along; what was given is the new model's."""
        prior, found = self.moved.model.prior, {}
        axes, parameters = learned_axes(prior), dict(prior.named_parameters())
        for name, value in self.fresh.prior.items():
            if name in axes and name in old:
                found[name] = carried_over(old[name], value, axes[name], self.where)
            elif name in old and old[name].shape == value.shape:
                found[name] = old[name]
            elif name in parameters:
                before = tuple(old[name].shape) if name in old else "there is none"
                raise InputError(
                    f"parameter '{name}' of {type(prior).__name__} is now {tuple(value.shape)}, in the state {before}, "
                    "expected one shape; build the model with the same hyperparameters, or say in `client_axes` which axes "
                    "are clients"
                )
            else:
                found[name] = value
        return found

    def _memory(self) -> Memory:
        """What is remembered of those who stay, NaN where nothing is known; what is of nobody stays as it is."""
        found = {}
        for name, (value, axes) in self.memory.items():
            sizes = [self.size if axis in axes else length for axis, length in enumerate(value.shape)]
            moved = carried_over(value, value.new_full(sizes, torch.nan), axes, self.where) if axes else value
            found[name] = Remembered(moved, axes)
        return found


def _started_newcomers(em: EM, moved: EM, state: EMState, start: str) -> EMState:
    """The state with the newcomers' networks where they start."""
    known = set(em.clients.names)
    new = torch.tensor([place for place, name in enumerate(moved.clients.names) if name not in known])
    stay = torch.tensor([place for place, name in enumerate(moved.clients.names) if name in known])
    if start == "initial":
        return state
    if start == "warm-up":
        begin = moved.round_start(state, absent=em.clients.names)._replace(epochs=moved.schedule.epochs(0), round=-1)
        trained = begin.train(state.params, state.optimizer)
        return _spent(state, begin.clients)._replace(params=trained.params, optimizer=trained.optimizer_state)
    if start == "best":
        state, best = _who_explains_best(moved, state, new, stay)
        donors = best[:, None]
    else:
        donors = (stay if start == "mean" else torch.tensor([moved.clients.names.index(start)]))[None]
    given = {
        name: value.index_copy(0, new.to(value.device), value[donors].mean(1).expand(len(new), *value.shape[1:]))
        for name, value in moved.clients.parts.cooperating(state.params).items()
    }
    return state._replace(params={**state.params, **given})


def _who_explains_best(moved: EM, state: EMState, new: Tensor, stay: Tensor) -> tuple[EMState, Tensor]:
    """Which of those who stay has the lowest loss on each newcomer's training data, (n,); some newcomers at a time."""
    clients, size = moved.counted(state), moved.clients.num_clients
    if clients.account is not None:
        warn_of_leaks({"loss"}, clients.account.privacy)
    best = []
    for some in new.split(max(1, AT_ONCE // size)):
        mask = torch.zeros(size, len(some), dtype=torch.bool).index_fill(0, stay, True)
        asked = {"loss": PairLoss(state.params, Peers(mask, some.expand(size, -1)), "receiver")}
        loss = clients.answer(asked, seed=state.seed, round=state.round)["loss"].nan_to_num(torch.inf)
        best.append(stay[loss[stay].argmin(0)])
    return _spent(state, clients), torch.cat(best)


def _spent(state: EMState, clients: AnyClients) -> EMState:
    """The state with what private clients have spent in between."""
    if not isinstance(clients, Counted):
        return state
    return state._replace(memory={**state.memory, SPENT: Remembered(clients.spent, (0,))})
