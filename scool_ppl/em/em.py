"""The EM driver: train, look, infer, mix, for any cooperation model."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from scool_ppl.base.arguments import check_kind
from scool_ppl.base.codec import Row
from scool_ppl.base.machine import threads
from scool_ppl.base.plugins import user_code
from scool_ppl.base.randomness import generator, key
from scool_ppl.data.federation import Federation
from scool_ppl.em.absence import (
    RESTING,
    absence_reasons,
    add_failed,
    among_present,
    keep_entries,
    rested_edges,
    restore_absent,
    restore_edges,
)
from scool_ppl.em.clock import Clock
from scool_ppl.em.model import Build, CooperationModel, OwnDriver, Schedule, check_clients, check_model
from scool_ppl.em.state import Deployment, EMInfo, EMState, Fit, check_memory, check_state
from scool_ppl.errors import ClientError, InputError, original
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.infer.estep.base import Posterior
from scool_ppl.infer.estep.projected import ProjectedGradient
from scool_ppl.infer.intervals import Intervals, intervals
from scool_ppl.infer.marginal import Marginal
from scool_ppl.infer.moments import AnyProgram
from scool_ppl.infer.priors.base import Joint
from scool_ppl.look.evidence import BlankEvidence, RoundEvidence
from scool_ppl.train.contract import AnyClients, Evaluation, Trained
from scool_ppl.train.privacy.account import SPENT
from scool_ppl.train.privacy.counted import Counted, counted
from scool_ppl.train.questions import Ensemble, Mixture, Params, Predictor, joined
from scool_ppl.train.round_start import Memory, Remembered, RoundStart

if TYPE_CHECKING:
    from scool_ppl.runs.folder import Run

SMALL = 2**17  # pairs or parameters: below, a second thread is only waited for


class Train(NamedTuple):
    """What came of the verb train; `memory` is what the mixing rule wants remembered."""

    trained: Trained
    memory: Memory
    components: Params
    """Networks of the seats without data, trained by who uses them."""


class Look(NamedTuple):
    """What came of the verb look; `memory` is what policy and likelihood want remembered."""

    evidence: RoundEvidence
    joint: Joint
    memory: Memory


class EM:
    """Alternates Pyro inference of the graph with training of the clients.

    One round raises the bound H(q, Phi) = E_q log P(D, theta, Y, Z) - E_q log q(Y, Z): in q (infer), then in the
    networks (mix, and the next round's train). The model's prior is copied: two EMs never share state. A model that names
    a `driver` of its own, as a portfolio of several models does, is run by that.
    """

    def __new__(cls, model: CooperationModel | OwnDriver | None = None, *args: Any, **options: Any) -> EM:
        return super().__new__(getattr(model, "driver", cls) if cls is EM else cls)

    def __init__(
        self,
        model: CooperationModel | OwnDriver,
        clients: AnyClients,
        schedule: Schedule | None = None,
        *,
        seed: int = 0,
    ) -> None:
        check_kind("model", model, CooperationModel, "load_model(name, num_clients) makes one")
        assert isinstance(model, CooperationModel)
        check_clients(clients)
        check_model(model, clients)
        check_kind("schedule", schedule or Schedule(), Schedule, "e.g. Schedule(local_epochs=5)")
        key(seed, "EM")  # refuses what is no seed
        # float64 for the graph: bounds are compared across sweeps, and K x K numbers are cheap beside the networks.
        self.model = model._replace(prior=copy.deepcopy(model.prior))
        self.clients = clients
        self.schedule = schedule or Schedule()
        self.seed = seed
        with user_code():
            self.model.prior.prepare(clients, seed)
        self.prior_start = self.model.prior.double().state()
        """The prior's parameters before the first round."""
        self.beside: Mapping[str, EM] = {}
        """Tracks that are trained beside this one, by name."""

    def init(self) -> EMState:
        """The state before the first round; it has a graph already where the prior says what it is to begin with."""
        params = self.clients.init(self.seed)
        initial = params if "updates" in self.model.needs else {}
        graph = self.model.prior.initial_graph()
        peers = None if graph is None else Peers.everybody(self.clients.num_clients, self.model.prior.includes_self)
        moments = {} if graph is None else {"Y": graph}
        components = self._initial_components()
        return EMState(
            params, initial, {}, moments, {}, self.prior_start, peers, {}, 0, self.seed, components=components
        )

    def _initial_components(self) -> Params:
        """What cooperates of the seats without data, each with a start of its own: what is alike stays alike."""
        seats, parts = range(self.model.components), self.clients.parts
        each = [parts.cooperating(self.clients.init(key(self.seed, "component", seat))) for seat in seats]
        return {name: torch.stack([params[name][0] for params in each]) for name in (each[0] if each else ())}

    def check(self, state: EMState) -> None:
        """Raises InputError unless the state is of these clients and this model's prior."""
        needs_initial = "updates" in self.model.needs
        check_state(state, self.prior_start, self.clients.num_clients, needs_initial, self.model.components)

    @torch.enable_grad()
    def step(
        self,
        state: EMState,
        absent: Collection[str] | Mapping[str, str] = (),
        *,
        unmixed: Params | None = None,
        clients: AnyClients | None = None,
    ) -> tuple[EMState, EMInfo]:
        """One round: train, look, infer, mix. `absent` are clients who sit it out, by name, or name -> reason.

        unmixed: networks of the same clients that nobody has mixed, for likelihoods that look at such, name -> (K, ...).
        clients: who trains and answers in this round, None for those of this EM, see `counted`.

        Where clients fail (ClientError) the round begins again without them: everybody else ends with the bits of a
        round in which they were absent from the start. A RunError if all fail; the state is as it was.
        """
        self.check(state)
        clock, away = Clock(), absence_reasons(absent, self.clients.names)
        clients = self.counted(state) if clients is None else clients
        while True:
            try:
                with user_code():
                    return self._round(state, self.round_start(state, away, clients), away, clock, unmixed)
            except ClientError as fault:
                away = add_failed(away, fault, self.clients.names, state.round)
            except InputError as error:
                found = original(error)
                raise found from found.__cause__

    def _round(
        self, state: EMState, start: RoundStart, away: dict[str, str], clock: Clock, unmixed: Params | None
    ) -> tuple[EMState, EMInfo]:
        first = None
        if self.model.components and state.peers is None:
            state, first = self._first_look(state, start, clock)
            start = self.round_start(state, away, start.clients)
        with clock("train"):
            trained, mixing_memory, components = self.train(state, start)
        start = start._replace(components=components)
        with clock("look"):
            evidence, joint, look_memory = self.look(start, trained.params, clock, unmixed)
        with clock("infer"):
            posterior, prior = self.infer(state, evidence, joint)
        with clock("mix"):
            params = self.mix(state, trained.params, posterior, evidence.peers, components)
        memory, epsilon = {**start.memory, **mixing_memory, **look_memory}, None
        if isinstance(start.clients, Counted):
            memory[SPENT] = Remembered(start.clients.spent, (0,))
            epsilon = dict(zip(self.clients.names, start.clients.epsilon.tolist(), strict=True))
        check_memory(memory, self.clients.num_clients)
        if start.absent:
            posterior, prior = restore_absent(self.model.prior, state, start, evidence, posterior, prior)
            params = keep_entries(params, state.params, dict.fromkeys(params, ~start.present))
            memory[RESTING] = rested_edges(start, evidence)
        received, sent = self._traffic(evidence, posterior.moments["Y"])
        if first is not None:
            received, sent = (now + before for now, before in zip((received, sent), self._traffic(first), strict=True))
        loss = float(trained.loss.nanmean())
        info = EMInfo(posterior.elbo, loss, trained.params, received, sent, dict(clock.seconds), away, epsilon)
        state = EMState(
            params=params,
            initial=state.initial,
            optimizer=trained.optimizer_state,
            moments=posterior.moments,
            q=posterior.q,
            prior=prior,
            peers=evidence.peers,
            memory=memory,
            round=state.round + 1,
            seed=state.seed,
            components=components,
        )
        return state, info

    def _first_look(self, state: EMState, start: RoundStart, clock: Clock) -> tuple[EMState, RoundEvidence]:
        """A graph before anybody has trained and what was seen: components differ from the start, so clients can choose."""
        with clock("look"):
            evidence, joint, memory = self.look(start._replace(round=-1), state.params, clock)
        with clock("infer"):
            posterior, prior = self.infer(state, evidence, joint)
        state = state._replace(
            moments=posterior.moments,
            q=posterior.q,
            prior=prior,
            peers=evidence.peers,
            memory={**state.memory, **memory},
        )
        return state, evidence

    def counted(self, state: EMState) -> AnyClients:
        """The clients; if they are private, they count on from what they have spent."""
        return counted(self.clients, state.memory[SPENT].value if SPENT in state.memory else None)

    def round_start(
        self, state: EMState, absent: Collection[str] = (), clients: AnyClients | None = None
    ) -> RoundStart:
        """Where the next round begins, for all clients but the absent; `clients` who have begun to count, see `counted`."""
        memory, peers, weights = dict(state.memory), state.peers, state.moments.get("Y")
        parts = self.clients.parts
        rest = memory.pop(RESTING, None)
        if peers is not None and weights is not None:
            peers, weights = restore_edges(peers, weights, rest, self._rows)
        return RoundStart(
            clients=self.counted(state) if clients is None else clients,
            params=parts.cooperating(state.params),
            initial=parts.cooperating(state.initial),
            peers=peers,
            weights=weights,
            memory=MappingProxyType(memory),
            includes_self=self.model.prior.includes_self,
            epochs=self.schedule.epochs(state.round),
            steps=self.schedule.local_steps,
            round=state.round,
            seed=state.seed,
            absent=tuple(self.clients.names.index(name) for name in absent),
            private=parts.at_home(state.params),
            components=state.components,
            moments=state.moments,
        )

    @property
    def _rows(self) -> bool:
        """Do the weights of each client sum to one?"""
        step = self.model.e_step
        return self.model.prior.kind == "rows" or (isinstance(step, ProjectedGradient) and step.domain == "simplex")

    def train(self, state: EMState, start: RoundStart) -> Train:
        """theta^t -> theta^{t+1/2}: local epochs on own data, with what the mixing rule adds to every step."""
        mixing, there = self.model.mixing, among_present(start, self._rows)
        terms = mixing.during(there)
        begin = state.params if terms.begin is None else {**state.params, **terms.begin}
        trained = start.train(begin, state.optimizer, pull=terms.pull, shares=terms.shares, importance=terms.importance)
        return Train(trained, dict(terms.memory), mixing.components(there, trained) if state.components else {})

    def look(
        self, start: RoundStart, trained: Params, clock: Clock | None = None, unmixed: Params | None = None
    ) -> Look:
        """The round's candidates and what they show, got in one exchange and scored by the likelihood.

        Where the likelihood is a function of the graph, clients are asked during infer: `clock` counts that as looking.
        """
        model, count = self.model, torch.get_num_threads()

        @contextmanager
        def asking() -> Iterator[None]:
            with (clock or Clock()).counting("look"), threads(count):
                yield

        peers = model.peers.once_trained(start, self.clients.parts.cooperating(trained))
        evidence = RoundEvidence(start, trained, peers, model.needs, asking, unmixed)
        log_lik = model.likelihood(evidence)
        memory = {**model.peers.to_remember(start), **model.likelihood.to_remember(evidence, log_lik)}
        return Look(evidence, Joint(model.prior, log_lik), memory)

    def infer(self, state: EMState, evidence: RoundEvidence, joint: Joint) -> tuple[Posterior, dict[str, Tensor]]:
        """q(Y, Z) and the prior's parameters: Pyro changes the EM's own copy of the prior, the state gets its values."""
        self.model.prior.load_state_dict(state.prior)
        random = generator(state.seed, "infer", state.round)
        with threads(1 if evidence.peers.mask.numel() < SMALL else None):
            posterior = self.model.e_step(joint, evidence, state.q, random)
        return posterior, self.model.prior.state()

    def joint(self, state: EMState, look: Look | None = None, *, marginal: bool = True) -> AnyProgram:
        """log P(Z, D) as a Pyro program without arguments, for NUTS and any guide: its site "Y" is E[Y | Z, D].

        D is what was looked at, by default what the round after the state shows. With `marginal=False` Y is a site as
        others are: log P(Y, Z, D). The prior is a copy with the state's parameters.
        """
        if look is None:
            start = self.round_start(state)
            trained = self.train(state, start)
            look = self.look(start._replace(components=trained.components), trained.trained.params)
        prior = copy.deepcopy(self.model.prior)
        prior.load_state_dict(state.prior)
        joint = Joint(prior, look.joint.log_lik)
        return Marginal(joint, look.evidence) if marginal else partial(joint, look.evidence)

    def mix(
        self, state: EMState, trained: Params, posterior: Posterior, peers: Peers, components: Params | None = None
    ) -> Params:
        """theta^{t+1} from theta^t, theta^{t+1/2} and w = E_q[Y]; `components` after training, else those of the state."""
        parts, small = self.clients.parts, sum(value.numel() for value in trained.values()) < SMALL
        before = joined(parts.cooperating(state.params), state.components)
        after = joined(parts.cooperating(trained), components or state.components)
        with torch.no_grad(), threads(1 if small else None):
            return {**self.model.mixing(before, after, posterior.moments["Y"], peers), **parts.at_home(trained)}

    def _traffic(self, evidence: RoundEvidence, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Bytes per client: one network for every other client or component that is looked at or used, and one more for
        every one of which a network that nobody has mixed is looked at, too; a client sends its copy of each component that
        it uses. Without weights nobody uses anything.
        """
        peers = evidence.peers
        weights = torch.zeros(peers.mask.shape) if weights is None else weights
        looked = peers.fresh.mask if self.model.needs else torch.zeros_like(peers.mask)
        moved = ((peers.mask & (weights > 0)) | looked).long() + (looked & evidence.looks_twice).long()
        senders = peers.columns().expand_as(moved)
        moved = moved * (senders != torch.arange(len(moved))[:, None])
        sent = torch.zeros(len(moved) + peers.components, dtype=torch.long)
        sent = sent.index_add_(0, senders.flatten(), moved.flatten())[: len(moved)] + (peers.shares(weights) > 0).sum(1)
        return moved.sum(1).double() * self.clients.bytes_per_model, sent.double() * self.clients.bytes_per_model

    def graph(self, state: EMState, evaluation: Evaluation | None = None) -> CooperationGraph:
        """The graph of a state, with what is known of its clients."""
        if state.peers is None or state.round == 0:
            raise InputError("the state is from before the first round, there is no graph yet; call step first")
        roster, peers, weights, shares, of_blocks = self.clients.roster, state.peers, state.moments["Y"], None, None
        if peers.components:
            every, last = self._at_rest(state)
            shares, of_blocks = peers.shares(weights), every.shares(last)
            peers, weights = peers.through(weights)
        return CooperationGraph(
            weights=weights,
            names=self.clients.names,
            peers=peers,
            kind=self.model.prior.kind,
            memberships=state.moments.get("z", state.moments.get("pi", of_blocks)),
            components=shares,
            groups=roster.groups,
            accuracy=None if evaluation is None else evaluation.score,
            samples=roster.sizes("train"),
            positions=None if self.model.prior.positions is None else state.moments.get(self.model.prior.positions),
        )

    def intervals(self, state: EMState, draws: int = 39) -> Intervals | None:
        """Where the probability of each edge lies under q, (K, M) each, with 95 % for 39 draws; see `infer.intervals`. None
        where edges go through components.
        """
        if state.peers is None or state.round == 0 or state.peers.components:
            return None
        self.model.prior.load_state_dict(state.prior)
        evidence = BlankEvidence(self.round_start(state), state.peers, ())
        random = generator(state.seed, "intervals", state.round)
        return intervals(self.model.prior, state.q, state.moments["Y"], evidence, random, draws)

    def mixture(self, state: EMState) -> Mixture | None:
        """The mixtures that clients predict with, None where each uses its own network alone."""
        if state.peers is None or state.round == 0:
            return None
        peers, weights = self._at_rest(state)
        return self.model.mixing.predictors(weights, peers)

    def _at_rest(self, state: EMState) -> tuple[Peers, Tensor]:
        """The candidates and their weights; those of clients who were absent are the last they had."""
        assert state.peers is not None
        peers, weights = state.peers, state.moments["Y"]
        away = ~peers.mask.any(1, keepdim=True)
        if not bool(away.any()):
            return peers, weights
        known, last = restore_edges(peers, weights, state.memory.get(RESTING), self._rows)
        return peers._replace(mask=torch.where(away, known.mask, peers.mask)), torch.where(away, last, weights)

    def predictor(self, state: EMState) -> Predictor:
        """What clients predict with: their networks, or mixtures of these and of components."""
        mixture = self.mixture(state)
        return Predictor(state.params if mixture is None else joined(state.params, state.components), mixture)

    def evaluate(self, state: EMState, split: str = "test") -> Evaluation:
        """The mixed networks of the clients, or their mixtures of predictions, on a split."""
        predictor = self.predictor(state)
        return self.clients.evaluate(predictor.networks, split, predictor.mixture)

    def evaluate_both(self, state: EMState, trained: Params) -> tuple[Evaluation, Evaluation]:
        """What `evaluate` says of test data and the same of networks before mixing, asked for at once."""
        mixed, before = self.clients.evaluations((self.predictor(state), Predictor(trained)), "test")
        return mixed, before

    def deploy(self, state: EMState, rule: object = None) -> Deployment:
        """What each client ships: here its network, or mixture of predictions; a portfolio chooses by a rule."""
        if rule is not None:
            raise InputError(
                "a rule of deployment was given, this model has nothing to choose from; make a deploy.Portfolio of it and "
                "deploy.alone(num_clients)"
            )
        everything = torch.ones(self.clients.num_clients, 1)
        return Deployment(("mixed",), Ensemble((self.predictor(state),), everything))

    def resume(self, run: str | os.PathLike[str] | Run) -> EMState:
        """The state at a run's newest intact checkpoint, which must be of this model, these clients and this schedule."""
        from scool_ppl.runs.fitting import resume

        return resume(self, run)

    def join(
        self,
        state: EMState,
        newcomers: Federation,
        build: Build,
        start: str = "best",
    ) -> tuple[EM, EMState]:
        """Clients come between two rounds: an EM of all and its state, in which the others keep what is known of them.

        `build` makes the model of a federation. A newcomer's q is uniform. Its network is that of whoever explains its
        training images best ("best"), or starts as everybody's did, by a first round of training alone ("warm-up"), at
        theta^0 ("initial"), at the mean of the others ("mean"), or at one of them (a name).
        """
        from scool_ppl.em.membership import join

        return join(self, state, newcomers, build, start)

    def leave(self, state: EMState, names: Collection[str], build: Build) -> tuple[EM, EMState]:
        """Clients go between two rounds: an EM of the others and its state; `build` as for `join`."""
        from scool_ppl.em.membership import leave

        return leave(self, state, names, build)

    def fit(
        self,
        rounds: int = 20,
        *,
        state: EMState | None = None,
        evaluate_every: int = 1,
        run: str | os.PathLike[str] | Run | None = None,
        resume: bool = False,
        checkpoint_every: int = 1,
        keep: int = 3,
        progress: bool = True,
        callbacks: Sequence[Callable[[EMState, EMInfo, Row], None]] = (),
    ) -> Fit:
        """Run `rounds` rounds; `run` is a new folder or a Run, which records them. Callbacks see every round.

        A callback is a function of state, info and the row of the history; one that is an object with `begin(em, history)`
        and `end(error)` is told when the rounds begin and end, as those of `runs.loggers` are.

        Clients of whom `clients.away(round)` says so sit a round out. Networks are evaluated every `evaluate_every` rounds
        and in the last; rows of the other rounds have no accuracy (None).

        The folder gets a checkpoint after every `checkpoint_every` rounds, the last `keep` of them stay. With resume=True
        `rounds` is the total: a run that is in the folder already goes on from its last checkpoint, bit for bit.
        """
        from scool_ppl.runs.fitting import fit

        return fit(
            self,
            rounds,
            state=state,
            evaluate_every=evaluate_every,
            run=run,
            resume=resume,
            checkpoint_every=checkpoint_every,
            keep=keep,
            progress=progress,
            callbacks=callbacks,
        )
