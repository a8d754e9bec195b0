"""Compact cells: means and spreads over the clients, of all that could be deployed after a fit; nothing by client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from scool_ppl.base.codec import Row
from scool_ppl.base.statistics import mean_of_worst, over_clients
from scool_ppl.deploy.deployment import LOCAL, RULES, Stack, deploy, rule_named
from scool_ppl.deploy.gains import gains
from scool_ppl.deploy.portfolio import Tracks
from scool_ppl.em.em import EM
from scool_ppl.em.state import EMInfo, EMState
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.runs.rows import number
from scool_ppl.train.contract import AnyClients
from scool_ppl.train.hostile import HostileClients
from scool_ppl.train.questions import Ensemble, Params, Predictor


def compact(em: EM, rounds: int) -> Row:
    """Fit without looking at test data on the way; at the end measure every deployment, see `deployments`."""
    state, seconds, received, first = em.init(), dict[str, float](), 0.0, None
    for _ in range(rounds):
        state, info = em.step(state)
        seconds = {verb: seconds.get(verb, 0.0) + spent for verb, spent in info.seconds.items()}
        received = float(info.bytes_received.mean())
        first = em.graph(state).score(em.clients.federation.truth)._asdict() if first is None else first
    graph = em.graph(state)
    alone = state.beside[LOCAL].params if LOCAL in state.beside else None
    if isinstance(em, Tracks):
        began = time.perf_counter()
        em.deploy(state)
        seconds["deploy"] = time.perf_counter() - began
    return {
        "test": {kind: measured(em, deployed, alone) for kind, deployed in deployments(em, state, info)},
        "graph": _rounded(graph.score(em.clients.federation.truth)._asdict()),
        "first_graph": None if first is None else _rounded(first),
        "received": received,
        "seconds": _rounded(seconds),
        **trust(graph, em.clients),
    }


def _rounded(found: Mapping[str, float | None]) -> Row:
    """Numbers of four digits, None where they are not finite."""
    return {name: None if value is None or number(value) is None else round(value, 4) for name, value in found.items()}


def deployments(em: EM, state: EMState, info: EMInfo) -> Iterator[tuple[str, Ensemble]]:
    """By name: the networks after mixing and before it, and of a portfolio what each rule makes of its candidates; of one
    that has several tracks also "without" each of them, and with classes as likely that a client has never seen.
    """
    everything = torch.ones(em.clients.num_clients, 1)
    yield "mixed", EM.deploy(em, state).ensemble
    yield "trained", Ensemble((Predictor(info.trained),), everything)
    if not isinstance(em, Tracks):
        return
    options, own = em.candidates(state), em.portfolio.rule
    yield LOCAL, Ensemble((options[LOCAL],), everything)
    for name in RULES:
        yield name, deploy(options, em.clients, rule_named(name, own)).ensemble
    if len(em.portfolio.tracks) == 2:
        return
    if isinstance(own, Stack) and own.unseen:
        yield "unseen as likely", deploy(options, em.clients, replace(own, unseen=False)).ensemble
    for track in sorted(em.portfolio.tracks.keys() - {LOCAL}):
        rest = {name: option for name, option in options.items() if name.partition(",")[0] != track}
        yield f"without {track}", deploy(rest, em.clients, own).ensemble


def measured(em: EM, deployed: Ensemble, alone: Params | None) -> Row:
    """What is deployed, on the honest clients' test data, and against what a track beside it has trained alone."""
    honest = em.clients.honest if isinstance(em.clients, HostileClients) else torch.ones(em.clients.num_clients) > 0
    score, task_score, loss = (values[honest] for values in em.clients.evaluate(deployed))
    found = {
        "accuracy": over_clients(score).mean,
        "worst10": mean_of_worst(score, 0.1),
        "task": over_clients(task_score).mean,
        "loss": over_clients(loss).mean,
    }
    if alone is not None:
        over = gains(em.clients, deployed, alone)
        over = over._replace(gain=over.gain[honest], error=over.error[honest])
        found |= {
            "gain": over_clients(over.gain).mean,
            "beyond": over.harmed(),
            "worst_gain": _lowest(over.gain),
        }
    return _rounded(found)


def _lowest(values: Tensor) -> float:
    return float(values.nan_to_num(torch.inf).min())


def trust(graph: CooperationGraph, clients: AnyClients) -> Row:
    """Mean weight that honest clients give to hostile ones, and to each other; nothing where all are honest."""
    if not isinstance(clients, HostileClients) or bool(clients.honest.all()):
        return {}
    honest, weights = clients.honest, graph.dense().fill_diagonal_(torch.nan)[clients.honest]
    return {"trust": {"hostile": float(weights[:, ~honest].nanmean()), "honest": float(weights[:, honest].nanmean())}}
