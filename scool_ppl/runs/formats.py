"""Checkpoints of earlier versions, brought to the present format."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from scool_ppl.base.codec import Tensors, decode
from scool_ppl.errors import InputError
from scool_ppl.runs.identity import TOLD

FORMAT = 3
"""2: MixUpdates did not weigh by samples. 1: memory without axes, theta^0 in every state as `start`, parts of the model
described in one text each, and evaluations with `accuracy`.
"""

_EVALUATION = {"accuracy": "score", "task_accuracy": "task_score"}


def upgraded(data: Any, tensors: Tensors, written: int) -> Any:
    """The data of a checkpoint as the present version would have written them."""
    if written == FORMAT or not isinstance(data, dict):
        return data
    if written == 2:
        return {**data, "facts": _weighed(data.get("facts"))}
    state, facts = data.get("state"), data.get("facts")
    if not isinstance(state, dict) or not isinstance(facts, dict) or not isinstance(state.get("memory"), dict):
        raise InputError("it has no state, memory and facts, which a checkpoint of format 1 has")
    state = {"initial" if name == "start" else name: value for name, value in state.items()}
    networks = decode(dict[str, Tensor], state.get("params"), tensors, "data/state/params")
    if not networks:
        raise InputError("data/state/params is empty, expected the parameters of networks")
    clients = len(next(iter(networks.values())))
    state["memory"] = dict(_remembered(name, value, clients, tensors) for name, value in state["memory"].items())
    told = {name: _settings(value) if name in TOLD else value for name, value in facts.items()}
    behaviour = told.get("behaviour of the clients")
    if isinstance(behaviour, list) and behaviour != ["as asked"]:
        told["behaviour of the clients"] = ["as asked", *behaviour]
    trained = data.get("trained")
    if isinstance(trained, dict):
        trained = {_EVALUATION.get(name, name): value for name, value in trained.items()}
    return {**data, "state": state, "facts": told, "trained": trained, "partial": True}


def _weighed(facts: Any) -> Any:
    """Updates counted alike."""
    mixing = facts.get("mixing") if isinstance(facts, dict) else None
    if (
        not isinstance(mixing, list)
        or "MixUpdates" not in mixing
        or any(str(own).startswith("samples=") for own in mixing)
    ):
        return facts
    return {**facts, "mixing": [*mixing, "samples=None"]}


def _remembered(name: str, value: Any, clients: int, tensors: Tensors) -> tuple[str, Any]:
    """An entry of the memory with its axes: those of as many as there are clients, unless it was named global/."""
    if name.startswith("global/"):
        return "joined" if name == "global/joined" else name, {"value": value, "axes": []}
    shape = decode(Tensor, value, tensors, f"data/state/memory/{name}").shape[:2]
    return name, {"value": value, "axes": [axis for axis, length in enumerate(shape) if length == clients]}


def _settings(told: Any) -> Any:
    """ "SBM(a=1, b=2)" as ["SBM", "a=1", "b=2"]."""
    if not isinstance(told, list) or len(told) != 1 or not isinstance(told[0], str):
        return told
    name, _, inside = told[0].partition("(")
    return [name, *filter(None, inside.removesuffix(")").split(", "))]
