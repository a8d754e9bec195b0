"""Silos: a run over clients who keep their data, as plain configs say it: the coordinator's part, and each silo's."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import torch
from rich.console import Console

from scool_ppl.base.arguments import check_hint, check_whole, positive
from scool_ppl.base.codec import Row
from scool_ppl.base.describe import listed, versions
from scool_ppl.data.federation import Federation
from scool_ppl.data.reading import SPLITS
from scool_ppl.data.specs import load_federation
from scool_ppl.deploy.blueprint import Blueprint
from scool_ppl.em.state import Deployment, EMInfo, EMState, Fit
from scool_ppl.errors import InputError, unknown
from scool_ppl.far.asking import Predicting
from scool_ppl.far.exchange import Part, Told
from scool_ppl.far.host import Host
from scool_ppl.far.remote import RemoteClients
from scool_ppl.far.wire import Fabric, Job
from scool_ppl.far.work import Found, Work
from scool_ppl.runs.folder import MARK, Run
from scool_ppl.train.clients import Clients
from scool_ppl.train.questions import Ensemble
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.tables import fit_table
from scool_ppl.workbench.workbench import Result, Workbench
from scool_ppl.zoo.load import DEFAULT_MODEL, parse_hyperparameters

Value = str | int | float | bool
Config = Mapping[str, Value]
Connect = Callable[[int, float, float], Fabric]
"""What carries requests to so many clients, with a timeout and a time to wait for them, in seconds."""

OWN: dict[str, Value] = {
    "model": DEFAULT_MODEL,
    "clients": 0,
    "out": "",
    "timeout": 600.0,
    "wait": 600.0,
    "task": "",
    "federation": "",
}
"""What a run config has beside the settings, and its defaults."""
NODE = ("data", "name", "keep", "device", "partition-id", "num-partitions")
"""What a node's config may have; the last two are a simulation's."""
NOT_TOLD = ("device", "class_weights", *(each.name for each in fields(Settings) if each.name.startswith("dp_")))
"""Settings that are the silo's own, that need all data, or that a coordinator who knows the seed could undo."""
TRIED = 3
"""Steps of training in a check."""
LEARNS_FROM = "learns_from.json"
"""The file in which a silo finds its row of the graph."""


class Order(NamedTuple):
    """What a run config asks for."""

    settings: Settings
    model: str
    choices: dict[str, Any]
    clients: int
    out: Path
    timeout: float
    wait: float
    task: str | None
    """As text, where files of clients do not say it alike."""
    federation: str | None
    """In a simulation: whose parts the clients have."""

    @classmethod
    def read(cls, config: Config) -> Order:
        """The config of a run, which has texts, numbers and truths alone: "" stands for none."""
        known = run_config()
        for name in config:
            if name not in known:
                raise unknown("key of the run config", name, known)
        told = {**known, **config}
        for name, value in OWN.items():
            check_hint(f"{name} of the run config", told[name], type(value))
        try:
            model, *pairs = shlex.split(str(told["model"])) or [DEFAULT_MODEL]
        except ValueError as error:
            raise InputError(f"model is {told['model']!r} ({error}), expected a model and name=value") from error
        if not positive(told["timeout"], told["wait"]):
            found = f"timeout is {told['timeout']} and wait {told['wait']}"
            raise InputError(f"{found}, expected positive numbers of seconds")
        return cls(
            settings=_settings(told),
            model=model,
            choices=parse_hyperparameters(model, pairs),
            clients=int(told["clients"]),
            out=Path(str(told["out"])),
            timeout=float(told["timeout"]),
            wait=float(told["wait"]),
            task=str(told["task"]) or None,
            federation=str(told["federation"]) or None,
        )

    def check(self) -> None:
        """Raises InputError unless a coordinator can begin with it."""
        if self.clients == 0:
            raise InputError("clients is 0, expected how many silos take part; add clients=4 to the run config")
        check_whole("clients", self.clients)
        if not self.out.is_absolute():
            raise InputError(
                f"out is '{self.out}', expected the run's folder as an absolute path; add out= to the run config"
            )


def run_config() -> dict[str, Value]:
    """All keys of a run config, and their defaults: those of `OWN`, and the settings by the names of their options."""
    told = {name: value for name, value in asdict(Settings()).items() if name not in NOT_TOLD}
    return {**OWN, **{_key(name): "" if value is None else value for name, value in told.items()}}


def drive(connect: Connect, config: Config) -> Result:
    """The coordinator's part: fits the model, leaves a run's folder, and hands each client what it deploys.

    Begun again with the same `out` it goes on where it was.
    """
    order = Order.read(config)
    order.check()
    settings, whole = order.settings, _simulated(order)
    fabric = connect(order.clients, order.timeout, order.wait)
    clients = RemoteClients(fabric, federation=whole)
    clients.network = settings.network_of(clients.roster)
    print(f"scool: {clients.num_clients} clients are here: {listed(clients.names)}", flush=True)
    bench = Workbench(clients.roster if whole is None else whole, settings, progress=False, elsewhere=clients)
    run = Run.open(order.out) if (order.out / MARK).is_file() else order.out
    result = bench.fit(order.model, order.choices, run=run, callbacks=[_told])
    Console(width=100).print(fit_table(result))
    for name, fault in deliver(clients, result.fit).items():
        print(f"scool: {name} has not got its network: {fault}; begin the run again, and it is sent anew", flush=True)
    print(f"scool: graph, history and pictures in {order.out}", flush=True)
    return result


def deliver(clients: RemoteClients, fit: Fit) -> dict[str, str]:
    """Each client gets what it deploys and its row of the graph, to keep; who did not get them, and why."""
    wire, graph = Predicting(fit.deployment.ensemble, clients.parts), fit.graph
    columns, shown = graph.peers.columns().expand_as(graph.weights), graph.peers.mask & (graph.weights > 0)

    def build(i: int) -> Job:
        row = {clients.names[int(columns[i, j])]: float(graph.weights[i, j]) for j in shown[i].nonzero().flatten()}
        told = {"candidates": json.dumps(fit.deployment.candidates), "learns_from": json.dumps(row)}
        return wire.job("deliver", i, told)

    def take(i: int, told: Told) -> None:
        """That it has come is all."""

    return clients.exchange.attempt([Part(torch.ones(clients.num_clients, dtype=torch.bool), build, take)])


def silo(node: Config, run: Config, name: str) -> Host:
    """A silo's part: the host of the one file that its own config names, or, in a simulation, of a share of a federation.

    name: what the coordinator calls it, "" where it leaves that to the silo.
    """
    return _silo(tuple(sorted(node.items())), tuple(sorted(run.items())), name)


@lru_cache(maxsize=64)
def _silo(node: tuple[tuple[str, Value], ...], run: tuple[tuple[str, Value], ...], name: str) -> Host:
    own, order = dict(node), Order.read(dict(run))
    for key in own:
        if key not in NODE:
            raise unknown("key of the node's config", key, NODE)
    if "data" in own:
        return _own_host(silo_clients(_own_data(own, order, name), order.settings, str(own.get("device", "cpu"))), own)
    whole, part, parts = _simulated(order), own.get("partition-id"), own.get("num-partitions")
    if whole is None or not isinstance(part, int) or not isinstance(parts, int):
        raise InputError("the node's config names no file, expected data=; add --node-config 'data=\"/data/mine.npz\"'")
    share = range(whole.num_clients * part // parts, whole.num_clients * (part + 1) // parts)
    if not share:
        raise InputError(f"{parts} nodes share {whole.num_clients} clients, expected a client at least for each")
    host = Host(silo_clients(whole.select(share), order.settings), keeps=False)
    host.verbs["deliver"] = _unkept
    return host


def _own_host(clients: Clients, own: Config) -> Host:
    """A silo's host. What it deploys goes into its own folder, where its private parts are, too: every message that it
    answers may be answered by another process.
    """
    if "keep" not in own:
        if clients.parts.private:
            found = f"parameters are private ({listed(clients.parts.private)}), which stay at a silo"
            raise InputError(f"{found}, expected a folder for them; add --node-config 'keep=\"/data/out\"'")
        host = Host(clients)
        host.verbs["deliver"] = _unkept
        return host
    (name,), path = clients.names, Path(str(own["keep"]))
    run = Run.open(path) if (path / MARK).is_file() else Run.create(path, {"client": name, "versions": versions()})
    host = Host(clients, home=path / "private")
    host.verbs["deliver"] = partial(_keep, run)
    return host


def silo_clients(federation: Federation, settings: Settings, device: str = "cpu") -> Clients:
    """The clients of a silo: one after the other, unless the run says how."""
    executor = "loop" if settings.executor == "auto" else settings.executor
    return replace(settings, executor=executor, device=device).clients(federation)


def check_silo(path: str | Path, settings: Settings, task: str | None = None) -> dict[str, str]:
    """Whether a silo's file will do, line by line; what will not is an InputError, as the silo would raise it."""
    federation = Federation.from_npz(path, name=Path(path).stem, task=task, seed=settings.seed)
    host = Host(silo_clients(federation, settings))
    ((name, told),) = host.describe().items()
    (theta,) = host.handle({name: (Job("init", {"seed": settings.seed}, {}),)}).replies[name]
    once = Job("train", {"epochs": 1, "steps": TRIED, "seed": settings.seed, "round": 0}, theta)
    replies, faults = host.handle({name: (once,)})
    if faults:
        raise InputError(f"the network '{settings.network}' cannot be trained on {path}: {faults[name]}")
    loss = float(replies[name][0]["loss"])
    if not math.isfinite(loss):
        raise InputError(f"the loss on {path} is {loss} within {TRIED} steps, expected a number; scale its inputs")
    known = sum(count > 0 for count in told.counts[0])
    classes = f", {known} of {len(told.counts[0])} classes for training" if told.counts[0] else ""
    return {
        "data": f"{', '.join(f'{rows} {split}' for split, rows in zip(SPLITS, told.rows, strict=True))} rows",
        "task": f"{told.kind}{classes}",
        "network": f"{theta['theta'].numel()} parameters, {told.bytes_per_model / 1e6:.2g} MB each time it travels",
        "training": f"loss {loss:.4g} in the first {TRIED} steps",
        "told": "numbers of rows, of rows of each class, the entropy of the labels, a fingerprint of the data; no row",
    }


def _own_data(own: Config, order: Order, name: str) -> Federation:
    if order.federation is not None:
        raise InputError(f"the run is of the federation '{order.federation}', this silo has data; leave federation out")
    path, said = str(own["data"]), str(own.get("name", ""))
    if name and said and name != said:
        raise InputError(f"the coordinator calls this silo '{name}', it calls itself '{said}'; agree on one")
    called = name or said or Path(path).stem
    return Federation.from_npz(path, name=called, task=order.task, seed=order.settings.seed)


def _keep(run: Run, clients: Clients, work: Work) -> Found:
    """What a silo deploys, into its folder, which then is as that of a run: `scool predict` and `export` read it."""
    ((name, job),) = work.jobs.items()
    ensemble = work.predictors()
    assert isinstance(ensemble, Ensemble)
    run.deploy(Deployment(tuple(json.loads(str(job.options["candidates"]))), ensemble), Blueprint.of(clients))
    run.write_json(LEARNS_FROM, json.loads(str(job.options["learns_from"])))
    return {name: {}}


def _unkept(clients: Clients, work: Work) -> Found:
    """The same where there is no folder for it: that it has come is all."""
    return work.each(lambda name, i: {})


def _simulated(order: Order) -> Federation | None:
    return None if order.federation is None else load_federation(order.federation, seed=order.settings.seed)


def _settings(told: Config) -> Settings:
    hints, chosen = get_type_hints(Settings), dict[str, Any]()
    for each in fields(Settings):
        if each.name not in NOT_TOLD:
            value: Value | None = told[_key(each.name)]
            chosen[each.name] = value = None if value == "" and each.default is None else value
            check_hint(f"{_key(each.name)} of the run config", value, hints[each.name])
    return Settings(**chosen)


def _key(name: str) -> str:
    return name.replace("_", "-")


def _told(state: EMState, info: EMInfo, row: Row) -> None:
    """A line a round, for the log."""
    score, bound = row["accuracy"]["mean"], row["elbo"]
    shown = f"round {row['round']}: loss {info.loss:.4g}, {row['score']} {math.nan if score is None else score:.3f}"
    away = "".join(f", without {name} ({why})" for name, why in row["quarantined"].items())
    print(f"scool: {shown}, bound {math.nan if bound is None else bound:.5g}{away}", flush=True)
