"""Fitting: the loop over rounds with its progress bar and callbacks, recorded in a run's folder where there is one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from scool_ppl.base.arguments import check_kind, check_whole
from scool_ppl.base.codec import Row
from scool_ppl.base.progress import tracked
from scool_ppl.deploy.blueprint import Blueprint
from scool_ppl.em.em import EM
from scool_ppl.em.state import EMInfo, EMState, Fit
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.look.leaks import warn_of_leaks
from scool_ppl.runs.folder import Run
from scool_ppl.runs.journal import newest, recording
from scool_ppl.runs.loggers.base import watched
from scool_ppl.runs.rows import history_row
from scool_ppl.train.contract import Evaluation
from scool_ppl.train.faults import warn_of_explosion


def fit(
    em: EM,
    rounds: int,
    *,
    state: EMState | None,
    evaluate_every: int,
    run: str | os.PathLike[str] | Run | None,
    resume: bool,
    checkpoint_every: int,
    keep: int,
    progress: bool,
    callbacks: Sequence[Callable[[EMState, EMInfo, Row], None]],
) -> Fit:
    """See EM.fit."""
    check_whole("rounds", rounds)
    check_whole("evaluate_every", evaluate_every)
    for callback in callbacks:
        check_kind("callback", callback, Callable, "write a function of state, info and row")  # type: ignore[arg-type]
    if em.clients.account is not None:
        needs = {need for each in (em, *em.beside.values()) for need in each.model.needs}
        warn_of_leaks(needs, em.clients.account.privacy, chosen=bool(em.beside))
    with recording(em, run, state, resume=resume, rounds=rounds, every=checkpoint_every, keep=keep) as journal:
        state = journal.state
        warned = False
        total = rounds if resume else state.round + rounds
        if state.round == total:
            graph, mixed, trained = journal.outcome()
        rows = journal.history if resume else None
        with watched(em, callbacks, rows), tracked(total, done=state.round, enabled=progress) as report:
            while state.round < total:
                before = em.clients.carried
                state, info = em.step(state, em.clients.away(state.round))
                warned = warned or warn_of_explosion(info.loss, em.clients.roster.task.chance, state.round)
                if state.round % evaluate_every == 0 or state.round == total:
                    mixed, trained = em.evaluate_both(state, info.trained)
                else:
                    mixed = trained = Evaluation.none(em.clients.num_clients)
                graph = em.graph(state, mixed)
                found = graph.score(em.clients.roster.truth)
                carried = None if before is None else (em.clients.carried or 0) - before
                row = history_row(state.round, info, mixed, trained, found, em.clients.roster.task.score, carried)
                report(row)
                journal.record(row, graph, state, trained, last=state.round == total)
                for callback in callbacks:
                    callback(state, info, row)
                del info  # the trained networks, for which the next round needs the room
        began = time.perf_counter()
        deployment = em.deploy(state)
        deploying = time.perf_counter() - began
        deployed = deployment.evaluate(em.clients) if deployment.chosen else mixed
        if journal.run is not None:
            journal.run.deploy(deployment, Blueprint.of(em.clients))
            graph = _with_intervals(em, state, graph)
            journal.run.remember(state.round, graph)
    return Fit(graph, journal.history, state, mixed, trained, deployment, deployed, deploying)


def _with_intervals(em: EM, state: EMState, graph: CooperationGraph) -> CooperationGraph:
    """The graph with the credible intervals of its weights, where there are any."""
    found = em.intervals(state)
    return graph if found is None else replace(graph, low=found.low, high=found.high)


def resume(em: EM, run: str | os.PathLike[str] | Run) -> EMState:
    """See EM.resume."""
    last = newest(em, run)
    return em.init() if last is None else last.state
