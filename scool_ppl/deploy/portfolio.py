"""Portfolio: several cooperation models over the same clients, trained side by side, and one deployment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scool_ppl.base.arguments import check_kind
from scool_ppl.data.federation import Federation
from scool_ppl.deploy.deployment import LOCAL, Rule, Stack, candidates, deploy
from scool_ppl.em.em import EM
from scool_ppl.em.membership import keep_frozen
from scool_ppl.em.model import Build, CooperationModel, Schedule
from scool_ppl.em.state import Deployment, EMInfo, EMState
from scool_ppl.errors import InputError
from scool_ppl.infer.priors.dirac import Dirac
from scool_ppl.look.likelihoods import Ignored
from scool_ppl.mix.base import Alone
from scool_ppl.train.contract import AnyClients, Plan, Trained, Wrapper
from scool_ppl.train.privacy.account import SPENT
from scool_ppl.train.privacy.evidence import check_question
from scool_ppl.train.questions import Params, PredictionLoss, Predictor
from scool_ppl.train.round_start import Remembered


def alone(num_clients: int) -> CooperationModel:
    """Local-only training: nobody learns from anybody."""
    return CooperationModel(Dirac(torch.zeros(num_clients, num_clients)), Ignored(), Alone())


class Portfolio(NamedTuple):
    """Cooperation models by name, each a *track*, and the rule by which clients deploy what these have come to.

    One of them is called "local", local-only training: what harms nobody is always among the candidates, and the other
    tracks may look at its networks, which nobody has mixed. `shown` is the track whose graph, bound and networks are the
    run's.
    """

    tracks: Mapping[str, CooperationModel]
    shown: str
    rule: Rule = Stack()

    def with_each(self, changed: Callable[[CooperationModel], CooperationModel]) -> Portfolio:
        """The same with every track's model changed."""
        return self._replace(tracks={name: changed(model) for name, model in self.tracks.items()})

    @property
    def driver(self) -> type[EM]:
        """What runs it: EM(portfolio, clients) makes one."""
        return Tracks


class TrainedOnce(Wrapper):
    """Clients who train once where several models ask for the same: the same networks, from the first step on, on their
    own data. What that comes to belongs to all who asked.
    """

    def __init__(self, clients: AnyClients) -> None:
        super().__init__(clients)
        self._known: tuple[Params, Plan, Trained] | None = None

    def train(self, params: Params, optimizer_state: Params | None, plan: Plan) -> Trained:
        if optimizer_state or any(term is not None for term in (plan.pull, plan.shares, plan.importance)):
            return super().train(params, optimizer_state, plan)
        if self._known is None or plan != self._known[1] or not _same(params, self._known[0]):
            self._known = params, plan, super().train(params, optimizer_state, plan)
        return self._known[2]


def _same(one: Params, other: Params) -> bool:
    """Are these the very same tensors?"""
    return one.keys() == other.keys() and all(value is other[name] for name, value in one.items())


class Tracks(EM):
    """The EM of a portfolio: that of the track that is shown, with those of the others beside it.

    A round is a round of every track, local training first. All that an EM can do a portfolio can: its state is that of
    the shown track, the others' are in `state.beside`.
    """

    def __init__(
        self, model: Portfolio, clients: AnyClients, schedule: Schedule | None = None, *, seed: int = 0
    ) -> None:
        portfolio = _check(model)
        super().__init__(portfolio.tracks[portfolio.shown], clients, schedule, seed=seed)
        if clients.account is not None:
            check_question(PredictionLoss(Predictor({})), clients.account.privacy)
        self.portfolio = portfolio
        others = [LOCAL, *(name for name in portfolio.tracks if name not in (LOCAL, portfolio.shown))]
        self.beside = {name: EM(portfolio.tracks[name], clients, schedule, seed=seed) for name in others}

    def init(self) -> EMState:
        own = super().init()
        return own._replace(beside={name: em.init()._replace(params=own.params) for name, em in self.beside.items()})

    def check(self, state: EMState) -> None:
        super().check(state)
        if state.beside.keys() != self.beside.keys():
            found = ", ".join(state.beside) or "none"
            raise InputError(
                f"the state has the tracks {found} beside its own, expected {', '.join(self.beside)}; use the EM that "
                "it comes from"
            )
        for name, em in self.beside.items():
            em.check(state.beside[name])

    def step(
        self,
        state: EMState,
        absent: Collection[str] | Mapping[str, str] = (),
        *,
        unmixed: Params | None = None,
        clients: AnyClients | None = None,
    ) -> tuple[EMState, EMInfo]:
        """One round of every track; after the first, the others look at the networks that were trained alone, too. In the
        first, tracks that train alike are trained once.

        What private clients have spent goes from track to track: the state of the shown one has the sum of all.
        """
        self.check(state)
        if clients is None and state.round == 0 and self.clients.account is None:
            clients = TrainedOnce(self.clients)
        beside: dict[str, EMState] = {}
        infos: list[EMInfo] = []
        last = state
        for name, em in self.beside.items():
            beside[name], info = em.step(
                _counting_on(state.beside[name], last), absent, unmixed=unmixed, clients=clients
            )
            last = beside[name]
            infos.append(info)
            if state.round > 0:
                unmixed = beside[LOCAL].params
        own, info = super().step(_counting_on(state, last), absent, unmixed=unmixed, clients=clients)
        return own._replace(beside=beside), _together(info, infos)

    def candidates(self, state: EMState) -> dict[str, Predictor]:
        """All that the tracks have come to, local-only training first."""
        states = {**state.beside, self.portfolio.shown: state}
        found: dict[str, Predictor] = {}
        for name, em in {**self.beside, self.portfolio.shown: self}.items():
            found |= candidates(em, states[name], name)
        return found

    def deploy(self, state: EMState, rule: object = None) -> Deployment:
        """What each client ships, by the portfolio's rule or another."""
        rule = self.portfolio.rule if rule is None else rule
        check_kind("rule", rule, Rule, "e.g. Stack() or Single()")
        assert isinstance(rule, Rule)
        return deploy(self.candidates(state), self.clients, rule)

    def join(
        self,
        state: EMState,
        newcomers: Federation,
        build: Build,
        start: str = "best",
    ) -> tuple[EM, EMState]:
        """See EM.join; `build` makes the portfolio of a federation. In the local track newcomers begin by training alone,
        or at theta^0 if that is the start: their networks there are nobody's.
        """
        check_kind("newcomers", newcomers, Federation, "load_federation(spec) makes one")
        local = self.beside[LOCAL]

        def join(em: EM, of: EMState, one: Build) -> tuple[EM, EMState]:
            return EM.join(em, of, newcomers, one, "warm-up" if em is local and start != "initial" else start)

        return self._moved(state, build, join)

    def leave(
        self,
        state: EMState,
        names: Collection[str],
        build: Build,
    ) -> tuple[EM, EMState]:
        """See EM.leave; `build` makes the portfolio of a federation."""
        return self._moved(state, build, lambda em, of, one: EM.leave(em, of, names, one))

    def _like(self, built: object) -> Portfolio:
        """A portfolio that was built for other clients, with the tracks of this one."""
        portfolio = _check(built)
        if portfolio.tracks.keys() != self.portfolio.tracks.keys() or portfolio.shown != self.portfolio.shown:
            raise InputError(
                f"`build` made the tracks {', '.join(portfolio.tracks)} and shows {portfolio.shown}, expected "
                f"{', '.join(self.portfolio.tracks)} and {self.portfolio.shown}; build the same portfolio"
            )
        return portfolio

    def _moved(
        self,
        state: EMState,
        build: Build,
        move: Callable[[EM, EMState, Build], tuple[EM, EMState]],
    ) -> tuple[EM, EMState]:
        """Every track moved to the clients of another federation, by what moves one."""
        self.check(state)
        check_kind("build", build, Callable, "write lambda federation: load_model(name, federation.num_clients)")  # type: ignore[arg-type]
        made: list[Portfolio] = []

        def track(name: str) -> Build:
            def one(federation: Federation) -> CooperationModel:
                if not made:
                    made.append(self._like(build(federation)))
                return made[0].tracks[name]

            return one

        beside = {
            name: move(em, _counting_on(state.beside[name], state), track(name))[1] for name, em in self.beside.items()
        }
        moved, own = move(self, state, track(self.portfolio.shown))
        new = torch.tensor([name not in self.clients.names for name in moved.clients.names])
        own = _together_spent(own, list(beside.values()), new)
        tracks = Tracks(made[0], moved.clients, self.schedule, seed=self.seed)
        for last, em in ((self, tracks), *((em, tracks.beside[name]) for name, em in self.beside.items())):
            keep_frozen(last, em)
        return tracks, own._replace(beside=beside)


def _check(portfolio: object) -> Portfolio:
    check_kind("portfolio", portfolio, Portfolio, "Portfolio(tracks, shown) makes one")
    assert isinstance(portfolio, Portfolio)
    check_kind("tracks of the portfolio", portfolio.tracks, Mapping, "give models by name")
    for model in portfolio.tracks.values():
        check_kind("track of the portfolio", model, CooperationModel, "load_model(name, num_clients) makes one")
    check_kind("rule of the portfolio", portfolio.rule, Rule, "e.g. Stack() or Single()")
    if LOCAL not in portfolio.tracks or portfolio.shown not in portfolio.tracks or portfolio.shown == LOCAL:
        raise InputError(
            f"the portfolio shows '{portfolio.shown}' of the tracks {', '.join(portfolio.tracks)}, expected one of them "
            f"that is not '{LOCAL}', and '{LOCAL}' among them"
        )
    for name in portfolio.tracks:
        if not isinstance(name, str) or "," in name:
            raise InputError(f"the portfolio has a track {name!r}, expected a name without a comma; rename it")
    if not isinstance(portfolio.tracks[LOCAL].mixing, Alone):
        mixing = type(portfolio.tracks[LOCAL].mixing).__name__
        raise InputError(
            f"the track '{LOCAL}' mixes by {mixing}, expected training alone; deploy.alone(num_clients) is it"
        )
    return portfolio


def _together(own: EMInfo, others: Sequence[EMInfo]) -> EMInfo:
    """What a round of all tracks did: traffic and seconds are sums, bound, loss and networks those of the shown one."""
    seconds = dict(own.seconds)
    for info in others:
        for verb, spent in info.seconds.items():
            seconds[verb] = seconds.get(verb, 0.0) + spent
    return own._replace(
        bytes_received=own.bytes_received + sum(info.bytes_received for info in others),
        bytes_sent=own.bytes_sent + sum(info.bytes_sent for info in others),
        seconds=seconds,
        quarantined={**{name: why for info in others for name, why in info.quarantined.items()}, **own.quarantined},
    )


def _counting_on(state: EMState, last: EMState) -> EMState:
    """The state of a track in which private clients count on from what they have spent in another one."""
    return state._replace(memory={**state.memory, SPENT: last.memory[SPENT]}) if SPENT in last.memory else state


def _together_spent(own: EMState, beside: Sequence[EMState], new: Tensor) -> EMState:
    """The shown track's state with what private newcomers (K,) bool have spent to begin in all tracks; the others have only
    moved.
    """
    if SPENT not in own.memory:
        return own
    each = [state.memory[SPENT].value.nan_to_num(0) for state in (own, *beside)]
    total = torch.where(new[:, None], torch.stack(each).sum(0), each[0])
    return own._replace(memory={**own.memory, SPENT: Remembered(total, (0,))})
