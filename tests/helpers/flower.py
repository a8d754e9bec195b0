"""A grid without Flower's engine: its records, messages and apps, with nodes that go wrong where a test says so."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from scool_ppl.far import Host

MISSING = "flwr is not installed; `make test-flower` does it"
flower = pytest.importorskip("scool_ppl.far.flower.fabric", reason=MISSING)
flwr = pytest.importorskip("flwr.app", reason=MISSING)
identity = pytest.importorskip("flwr.supercore.task_identity", reason=MISSING)

FIRST = 100
"""The first node's number."""


class FakeGrid:
    """Nodes 100, 101, ..., each with its node config, and the name that its key is registered by.

    spoil(node, message, reply): what becomes of a reply; None where none comes. `gone`: nodes that are not connected.
    """

    def __init__(
        self,
        app: Any,
        nodes: Sequence[Mapping[str, Any]],
        run: Mapping[str, Any] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.app, self.gone, self.sent = app, set[int](), list[Any]()
        self.names = {FIRST + i: names[i] if names else "" for i in range(len(nodes))}
        self.contexts = {
            FIRST + i: flwr.Context(
                run_id=1, node_id=FIRST + i, node_config=dict(own), state=flwr.RecordDict(), run_config=dict(run or {})
            )
            for i, own in enumerate(nodes)
        }
        self.boxes: dict[str, Any] = {}
        self.spoil: Callable[[int, Any, Any], Any] = lambda node, message, reply: reply
        for name in ("run_id", "node_id", "task_id"):  # else Message() raises outside a run
            setattr(identity.TaskIdentity, name, 1)

    def get_node_ids(self) -> list[int]:
        return [node for node in self.contexts if node not in self.gone]

    def get_nodes(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(node_id=node, name=self.names[node]) for node in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        keys = list[str]()
        for message in messages:
            keys.append(str(uuid.uuid4()))
            message.metadata.__dict__["_message_id"] = keys[-1]
            self.sent.append(message)
            node = message.metadata.dst_node_id
            try:
                reply = self.app(message, self.contexts[node])
            except Exception as error:  # as Flower does
                reply = flwr.Message(flwr.Error(code=2, reason=f"{type(error)}:<'{error}'>"), reply_to=message)
            self.boxes[keys[-1]] = self.spoil(node, message, reply)
        return keys

    def pull_messages(self, keys: Iterable[str]) -> list[Any]:
        return [found for key in keys if (found := self.boxes.pop(key, None)) is not None]


def grid_of(hosts: Sequence[Host], names: Sequence[str] = ()) -> FakeGrid:
    """A node for each of these hosts."""
    app = flower.client_app(lambda node, run, name: hosts[node["place"]])
    return FakeGrid(app, [{"place": place} for place in range(len(hosts))], names=names)
