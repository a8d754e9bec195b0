"""A program that torchrun begins several of: models over all ranks, each against the same in this process; or `scool`, of
which rank 1 dies once.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from scool_ppl.cli.main import main as scool
from scool_ppl.data.federation import Federation
from scool_ppl.data.specs import load_federation
from scool_ppl.em.em import EM
from scool_ppl.em.model import Schedule
from scool_ppl.errors import ClientError, InputError, RunError
from scool_ppl.far import Job, Ranks, ShardedClients, ranks
from scool_ppl.graph.stacks import rows_here, unshared
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import AnyClients, Plan, Trained
from scool_ppl.train.questions import Params
from scool_ppl.zoo.load import load_model
from tests.helpers.small import brief

SPEC = "permuted:digits:clients=5,groups=2,train=20,test=20,order=listed"


def fitted(model: str, federation: Federation, clients: AnyClients) -> Any:
    built = load_model(model, federation.num_clients, federation=federation)
    return EM(brief(built), clients, Schedule(1, 3), seed=1).fit(2, progress=False)


def compared(models: list[str], processes: Ranks) -> dict[str, Any]:
    """The largest difference of each model's networks and graph from those of one process."""
    federation, found = load_federation(SPEC, seed=3), dict[str, Any]()
    for model in models:
        whole = Clients(federation, executor="stacked", dtype=torch.float64)
        there, here = fitted(model, federation, processes.clients(whole)), fitted(model, federation, whole)
        pairs = [(there.state.params[name], value) for name, value in here.state.params.items()]
        pairs += [(there.graph.weights, here.graph.weights), (there.deployed.score, here.deployed.score)]
        found[model] = max(float((one - two).abs().max()) for one, two in pairs)
    return found


def sharded(models: list[str], processes: Ranks) -> dict[str, Any]:
    """The same where ranks share the networks, or why a model is refused; and who is left out where a client fails."""
    federation, found = load_federation(SPEC, seed=3), dict[str, Any]()
    here = Clients(federation, executor="stacked", dtype=torch.float64)
    there = ShardedClients(here, processes)
    for model in models:
        try:
            mine = fitted(model, federation, there)
        except InputError as error:
            found[model] = str(error)
            continue
        theirs = fitted(model, federation, here)
        assert all(len(rows_here(value)[1]) < 5 for value in mine.state.params.values())
        pairs = [(unshared(mine.state.params[name]), value) for name, value in theirs.state.params.items()]
        pairs += [(mine.graph.weights, theirs.graph.weights), (mine.deployed.score, theirs.deployed.score)]
        found[model] = max(float((one - two).abs().max()) for one, two in pairs)
    train = there.own.train

    def fail(params: Params, state: Params | None, plan: Plan) -> Trained:
        if 4 in there.here and len(there.here) - 1 not in plan.absent:
            raise ClientError({"client 4": "out of order"})
        return train(params, state, plan)

    there.own.train = fail  # type: ignore[method-assign]
    em = EM(brief(load_model("ring", 5)), there, Schedule(1, 1))
    found["raised"] = sorted(em.step(em.init())[1].quarantined)
    return found


def faulty(processes: Ranks) -> dict[str, Any]:
    """A client of rank 1 raises; then ranks ask for different things."""
    clients = processes.clients(Clients(load_federation(SPEC, seed=3), executor="stacked"))
    host, found = clients.fabric.host, dict[str, Any]()  # type: ignore[attr-defined]
    if "client 3" in host.place:
        del host.verbs["train"]
    em = EM(load_model("ring", 5), clients, Schedule(1, 1))
    found["raised"] = sorted(em.step(em.init())[1].quarantined)
    networks = clients.init(0)
    for value in networks.values():
        value[2] += processes.rank
    try:
        clients.evaluate(networks)
    except RunError as error:
        found["differs"] = str(error)
    return found


def large(processes: Ranks) -> bool:
    """Does an answer of 110 MB come to everybody as it was?"""
    whole = Clients(load_federation(SPEC, seed=3), executor="stacked")
    fabric = processes.clients(whole).fabric
    numbers = torch.arange(110 * 2**18, dtype=torch.int32).view(torch.float32)
    if "client 4" in fabric.host.place:  # type: ignore[attr-defined]
        fabric.host.verbs["send"] = lambda clients, work: {name: {"x": numbers} for name in work}  # type: ignore[attr-defined]
    answers = fabric.ask(["client 4"], lambda name: (Job("send", {}, {}),))
    return torch.equal(answers.replies["client 4"][0]["x"].view(torch.int32), numbers.view(torch.int32))


def traffic(processes: Ranks) -> list[float]:
    """What the history says that travelled in each round, over the bytes that have come in at all ranks."""
    came, rounds, world = [0], list[float](), processes.world
    broadcast, objects = dist.broadcast, dist.all_gather_object

    def count_broadcast(tensor: Any, src: int) -> None:
        broadcast(tensor, src=src)
        came[0] += tensor.numel() * tensor.element_size() if src != processes.rank else 0

    def count_objects(every: list[Any], mine: Any) -> None:
        objects(every, mine)
        came[0] += sum(len(pickle.dumps(each)) for rank, each in enumerate(every) if rank != processes.rank)

    def note(*_: Any) -> None:
        total = torch.tensor(came[0])
        dist.all_reduce(total)
        rounds.append(int(total))

    federation = load_federation(SPEC, seed=3)
    clients = processes.clients(Clients(federation, executor="stacked", dtype=torch.float64))
    em = EM(brief(load_model("scool_sbm", 5, federation=federation)), clients, Schedule(1, 1), seed=1)
    state = em.init()
    dist.broadcast, dist.all_gather_object = count_broadcast, count_objects
    history = em.fit(2, state=state, progress=False, callbacks=[note]).history
    dist.broadcast, dist.all_gather_object = broadcast, objects
    assert world > 1
    counted = [rounds[0], rounds[1] - rounds[0]]
    return [row["bytes"]["carried"] * 5 / each for row, each in zip(history, counted, strict=True)]


def die_once(flag: Path) -> None:
    """Rank 1 dies before its third round, if it has not yet."""
    real = EM.step

    def step(em: EM, state: Any, *arguments: Any, **options: Any) -> Any:
        if state.round == 2 and os.environ["RANK"] == "1" and not flag.exists():
            flag.touch()
            os._exit(17)
        if state.round and os.environ["RANK"] == "0" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
            flag.with_name("began").open("a").write(f"{state.round} ")
        return real(em, state, *arguments, **options)

    EM.step = step  # type: ignore[method-assign]


if __name__ == "__main__":
    if sys.argv[1] == "dies":
        die_once(Path(sys.argv[2]))
        scool(sys.argv[3:])
    with ranks() as group:
        assert group is not None
        if sys.argv[1] == "shard":
            told = sharded(sys.argv[3:], group)
            if group.leads:
                Path(sys.argv[2]).write_text(json.dumps(told))
            group.wait()
            sys.exit()
        found = {**compared(sys.argv[2:], group), **faulty(group), "large": large(group), "traffic": traffic(group)}
        if group.leads:
            Path(sys.argv[1]).write_text(json.dumps(found))
