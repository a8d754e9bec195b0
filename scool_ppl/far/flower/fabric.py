"""Flower: requests travel through a SuperLink to silos, each of which keeps its data and answers for its own clients.

Here, and in `flower/records.py`, is all that the library has to do with flwr; a run is begun by `workbench/silos.py`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from scool_ppl.base.describe import listed, natural
from scool_ppl.errors import USER_ERRORS, InputError, ScoolError
from scool_ppl.far.flower.records import (
    Packing,
    answered,
    answers_in,
    described,
    descriptions_in,
    requests_in,
    word_in,
    words,
)
from scool_ppl.far.host import Host, reason
from scool_ppl.far.wire import Answers, Build, Description, Reply, size

Config = Mapping[str, str | int | float | bool]
"""What a run, or a node, was told when it was begun."""
Connect = Callable[[int, float, float], "FlowerFabric"]
Drive = Callable[[Connect, Config], None]
"""A run: it connects with so many clients, with a timeout and a time to wait for them, and does what the config says."""
HostOf = Callable[[Config, Config, str], Host]
"""The host of a node from its own config, that of the run, and how the coordinator calls it, "" where it does not."""

DESCRIBE, ANSWER = "query.describe", "train.answer"
POLL = 0.2
"""Seconds between two looks for replies."""
AGAIN = 3.0
"""Seconds until who could not describe itself is asked again."""
GONE = "its node is not connected"
GRACE = 5.0
"""Seconds that a message lives beyond twice the timeout: the others are sent before anybody is waited for."""


class FlowerFabric:
    """Carries requests over Flower's grid. A node that raises, is gone, or silent for `timeout` seconds is a fault.

    clients: how many there are in all; they are waited for `wait` seconds. A client is called what the coordinator has
    registered its key as, else what its node says, and a node answers for its own clients only.
    """

    near = False

    def __init__(self, grid: Grid, clients: int, timeout: float = 600.0, wait: float = 600.0) -> None:
        self.grid, self.clients, self.timeout, self.wait = grid, clients, timeout, wait
        self.node: dict[str, int] = {}
        self.trips, self.bytes, self.round = 0, 0, 0

    def describe(self) -> dict[str, Description]:
        """All clients, once they are there; what keeps a node from taking part is a warning at once."""
        told, asked, end = dict[str, Description](), set[int](), time.monotonic() + self.wait
        why, warned = dict[int, str](), set[str]()
        while True:
            left = max(end - time.monotonic(), POLL)
            names = {node.node_id: node.name for node in self.grid.get_nodes() if node.node_id not in asked}
            contents = {node: words(name=name) for node, name in names.items()}
            replies, silent = self._trip(DESCRIBE, contents, min(self.timeout, left))
            why = {node: why.get(node, fault) for node, fault in silent.items()}  # what it said before says more
            for node, reply in replies.items():
                try:
                    self._meet(node, names[node], reply, told)
                    asked.add(node)
                except InputError as error:
                    why[node] = str(error)
            if len(told) >= self.clients or time.monotonic() >= end:
                break
            for fault in set(why.values()) - warned:
                warned.add(fault)
                warnings.warn(f"a node cannot take part yet, it is asked again: {fault}", stacklevel=2)
            time.sleep(min(AGAIN if why else 5 * POLL, left))
        if len(told) != self.clients:
            found = f"{len(told)} clients have come ({listed(told)})" if told else "no client has come"
            raise InputError(f"{found} within {self.wait:g} s, expected {self.clients}; {_advice(why, len(told))}")
        return {name: told[name] for name in sorted(told, key=natural)}

    def _meet(self, node: int, registered: str, reply: RecordDict, told: dict[str, Description]) -> None:
        """Note the clients of a node."""
        if fault := word_in(reply, "fault"):
            raise InputError(fault)
        theirs = descriptions_in(reply)
        if registered and set(theirs) != {registered}:
            raise InputError(f"the node registered as '{registered}' says that it is {listed(theirs)}")
        for name in theirs:
            if name in told:
                raise InputError(f"two nodes say that they are '{name}', expected a name of its own for each")
        told.update(theirs)
        self.node |= dict.fromkeys(theirs, node)

    def away(self, round: int) -> Mapping[str, str]:
        """Those whose node is not connected; nobody where that is all of them, which is no round but a failure."""
        self.round, here = round, set(self.grid.get_node_ids())
        gone = {name: GONE for name, node in self.node.items() if node not in here}
        return gone if len(gone) < len(self.node) else {}

    def ask(self, names: Sequence[str], build: Build) -> Answers:
        self.trips += 1
        own: dict[int, list[str]] = {}
        for name in names:
            own.setdefault(self.node[name], []).append(name)
        packing, contents = Packing(), dict[int, RecordDict]()
        for node, of in own.items():
            requests = {name: build(name) for name in of}
            self.bytes += sum(job.bytes for request in requests.values() for job in request)
            contents[node] = packing(requests)
        messages, faults = self._trip(ANSWER, contents, self.timeout)
        replies: dict[str, Reply] = {}
        failed = {name: fault for node, fault in faults.items() for name in own[node]}
        for node, message in messages.items():
            try:
                answers = answers_in(message)
                _check_names(answers, own[node])
            except InputError as error:
                failed |= dict.fromkeys(own[node], str(error))
            else:
                replies |= answers.replies
                failed |= answers.faults
        self.bytes += sum(size(told) for reply in replies.values() for told in reply)
        return Answers({name: replies[name] for name in names if name in replies}, failed)

    def _trip(
        self, kind: str, contents: Mapping[int, RecordDict], timeout: float
    ) -> tuple[dict[int, RecordDict], dict[int, str]]:
        """What nodes reply, and why others do not."""
        here = set(self.grid.get_node_ids())
        replies, faults, waiting = dict[int, RecordDict](), dict[int, str](), dict[str, int]()
        for node, content in contents.items():
            if node not in here:
                faults[node] = GONE
                continue
            message = Message(content, node, kind, ttl=2 * timeout + GRACE, group_id=str(self.round))
            ids = [key for key in self.grid.push_messages([message]) if key]
            if ids:
                waiting[ids[0]] = node
            else:
                faults[node] = "its node could not be reached"
        end = time.monotonic() + timeout  # from when all are on their way
        while waiting and time.monotonic() < end:
            for reply in self.grid.pull_messages(list(waiting)):
                asked = waiting.pop(reply.metadata.reply_to_message_id, None)
                if asked is not None and reply.has_error():
                    faults[asked] = " ".join(str(reply.error.reason or f"error {reply.error.code}").split())[:300]
                elif asked is not None:
                    replies[asked] = reply.content
            if waiting:
                time.sleep(POLL)
        faults |= dict.fromkeys(waiting.values(), f"no answer within {timeout:g} seconds")
        return replies, faults


def server_app(drive: Drive) -> ServerApp:
    """The coordinator's side of a Flower app."""
    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:
        try:
            drive(lambda clients, timeout, wait: FlowerFabric(grid, clients, timeout, wait), dict(context.run_config))
        except ScoolError as error:
            print(f"scool: {' '.join(str(error).split())}", flush=True)
            raise

    app.main()(main)
    return app


def client_app(host_of: HostOf) -> ClientApp:
    """A silo's side of a Flower app."""
    app = ClientApp()

    def host(context: Context, name: str) -> Host:
        return host_of(dict(context.node_config), dict(context.run_config), name)

    def describe(message: Message, context: Context) -> Message:
        try:
            told = described(host(context, word_in(message.content, "name")).describe())
        except USER_ERRORS as error:
            told = words(fault=reason(error))
        return Message(told, reply_to=message)

    def answer(message: Message, context: Context) -> Message:
        requests = requests_in(message.content)
        try:
            answers = host(context, next(iter(requests)) if len(requests) == 1 else "").handle(requests)
        except USER_ERRORS as error:
            answers = Answers({}, dict.fromkeys(requests, reason(error)))
        return Message(answered(answers), reply_to=message)

    app.query("describe")(describe)
    app.train("answer")(answer)
    return app


def _check_names(answers: Answers, own: Iterable[str]) -> None:
    strangers = sorted((answers.replies.keys() | answers.faults.keys()) - set(own))
    if strangers:
        raise InputError(f"its node answered for '{strangers[0]}', who is not there")


def _advice(why: Mapping[int, str], found: int) -> str:
    """What to do where not all, or too many, have come."""
    if why:
        return f"one of the nodes says: {next(iter(why.values()))}"
    return "start the others' nodes, or give clients= in the run config" if found else "start the nodes of the silos"
