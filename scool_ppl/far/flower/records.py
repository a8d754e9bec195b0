"""Records: requests, replies and descriptions as Flower carries them: JSON that says what it is, and arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from scool_ppl.base.codec import decode
from scool_ppl.errors import InputError
from scool_ppl.far.wire import Answers, Description, Job, Networks, Option, Reply, Request

UNREADABLE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What reading a record may raise that somebody else has made."""
Found = dict[str, Array]
Rows = dict[tuple[int, int], Array]


class Packing:
    """Requests of one trip. A network that many are sent becomes an array once, which Flower keeps once, too."""

    def __init__(self) -> None:
        self._stacks: dict[int, Tensor] = {}
        self._rows: Rows = {}

    def __call__(self, requests: Mapping[str, Request]) -> RecordDict:
        """The requests to the clients of one node."""
        arrays = Found()

        def put(value: Array) -> str:
            arrays[place := str(len(arrays))] = value
            return place

        asked = [job.networks for request in requests.values() for job in request if job.networks is not None]
        stacks = {id(stack): stack for stack, _ in asked}
        # In the order that they have here: a host that meets them in another may round otherwise.
        rows = {known: sorted({row for stack, use in asked if id(stack) == known for row in use}) for known in stacks}
        places = {(known, row): put(self._row(stacks[known], row)) for known in stacks for row in rows[known]}

        def networks(job: Job) -> list[str] | None:
            return None if job.networks is None else [places[id(job.networks.stack), row] for row in job.networks.use]

        head = {
            name: [
                {
                    "verb": job.verb,
                    "options": dict(job.options),
                    "tensors": {key: put(_array(value)) for key, value in job.tensors.items()},
                    "networks": networks(job),
                }
                for job in request
            ]
            for name, request in requests.items()
        }
        return _record({"requests": head}, arrays)

    def _row(self, stack: Tensor, row: int) -> Array:
        self._stacks[id(stack)] = stack  # as long as it lives, nothing else has its id
        if (id(stack), row) not in self._rows:
            self._rows[id(stack), row] = _array(stack[row])
        return self._rows[id(stack), row]


def requests_in(record: RecordDict) -> dict[str, Request]:
    """What `Packing` has packed."""
    head, tensors = _head(record, "requests"), _tensors(record)
    used = sorted({place for of in head.values() for job in of for place in job["networks"] or ()}, key=int)
    stack = torch.stack([tensors[place] for place in used]) if used else None
    row = {place: number for number, place in enumerate(used)}

    def job(told: Mapping[str, Any]) -> Job:
        use, options = told["networks"], decode(dict[str, Option], told["options"], {}, "options")
        own = {key: tensors[place] for key, place in told["tensors"].items()}
        networks = None if use is None or stack is None else Networks(stack, tuple(row[place] for place in use))
        return Job(str(told["verb"]), options, own, networks)

    return {name: tuple(map(job, of)) for name, of in head.items()}


def answered(answers: Answers) -> RecordDict:
    """What the clients of a node say."""
    arrays = Found()

    def put(value: Tensor) -> str:
        arrays[place := str(len(arrays))] = _array(value)
        return place

    replies = {name: [{key: put(v) for key, v in told.items()} for told in of] for name, of in answers.replies.items()}
    return _record({"replies": replies, "faults": dict(answers.faults)}, arrays)


def answers_in(record: RecordDict) -> Answers:
    """What `answered` has packed; an InputError where it is anything else."""
    try:
        tensors = _tensors(record)
        replies: dict[str, Reply] = {
            name: tuple({key: tensors[place] for key, place in told.items()} for told in of)
            for name, of in _head(record, "replies").items()
        }
        return Answers(replies, decode(dict[str, str], _head(record, "faults"), {}, "faults"))
    except UNREADABLE as error:
        raise InputError(f"it sent what cannot be read ({type(error).__name__}: {error})") from error


def described(descriptions: Mapping[str, Description]) -> RecordDict:
    """What the clients of a node say of themselves."""
    return _record({"clients": {name: told._asdict() for name, told in descriptions.items()}}, {})


def descriptions_in(record: RecordDict) -> dict[str, Description]:
    """What `described` has packed; an InputError where it is anything else."""
    try:
        found: dict[str, Description] = decode(dict[str, Description], _head(record, "clients"), {}, "its description")
    except UNREADABLE as error:
        raise InputError(f"it described itself in what cannot be read ({error})") from error
    return found


def words(**texts: str) -> RecordDict:
    """Plain texts."""
    return RecordDict({"words": ConfigRecord(dict(texts))})


def word_in(record: RecordDict, name: str) -> str:
    """One of them, "" where it is not there."""
    return str(record.config_records["words"].get(name, "")) if "words" in record.config_records else ""


def _record(head: Mapping[str, object], arrays: Found) -> RecordDict:
    texts = {name: json.dumps(value) for name, value in head.items()}
    return RecordDict({"head": ConfigRecord(dict(texts)), "arrays": ArrayRecord(arrays)})


def _head(record: RecordDict, name: str) -> dict[str, Any]:
    found = json.loads(str(record.config_records["head"][name]))
    if not isinstance(found, dict):
        raise InputError(f"its {name} are a {type(found).__name__}, expected an object")
    return found


def _array(value: Tensor) -> Array:
    return Array(value.detach().cpu().contiguous().numpy())


def _tensors(record: RecordDict) -> dict[str, Tensor]:
    return {place: torch.from_numpy(array.numpy()) for place, array in record.array_records["arrays"].items()}
