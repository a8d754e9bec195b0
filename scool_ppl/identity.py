"""What a run is made of, as texts that can be compared: its model, clients, data and schedule."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from scool_ppl.errors import InputError

if TYPE_CHECKING:
    from scool_ppl.em import EM
    from scool_ppl.federation import Federation
    from scool_ppl.state import EMState

_PLAIN = (bool, int, float, str, type(None))
_FINGERPRINTS: WeakKeyDictionary[Federation, str] = WeakKeyDictionary()


def facts(em: EM) -> dict[str, list[str]]:
    """All on which the further course of a run depends besides its state."""
    clients, model = em.clients, em.model
    return {
        "number of clients": [str(clients.num_clients)],
        "client": list(clients.names),
        "behaviour of the clients": [clients.behaviour],
        "network": signature(dict(clients._module.named_parameters())),
        **{part: [_described(getattr(model, part))] for part in ("prior", "likelihood", "mixing", "peers", "e_step")},
        "parameter of the prior": signature(em.model.prior.state()),
        "schedule": [repr(em.schedule)],
        "optimizer": [_described(clients.optimizer)],
        "batch size": [str(clients.batch_size)],
        "probe size": [str(clients.probe_size)],
        "seed": [str(em.seed)],
        "data": [f"SHA-256 {fingerprint(clients.federation)}"],
    }


def compare(found: Mapping[str, list[str]], expected: Mapping[str, list[str]], what: str) -> None:
    """Refuses the first fact that differs; `found` are those of `what`, `expected` the EM's."""
    for name, own in expected.items():
        for theirs, ours in zip_longest(found.get(name, []), own, fillvalue="nothing"):
            if theirs != ours:
                raise InputError(
                    f"{what} has the {name} {_cut(theirs)}, this EM {_cut(ours)}; "
                    "resume with what the run began with, or begin a new run in another folder"
                )


def compare_state(state: EMState, own: EMState, what: str) -> None:
    """Names, shapes and dtypes of networks and prior parameters of a state against those of the EM's own first state."""
    for part in ("params", "start", "prior"):
        found, expected = signature(getattr(state, part)), signature(getattr(own, part))
        compare({part: found}, {part: expected}, what)
    clients = len(next(iter(own.params.values())))
    for name, value in state.optimizer.items():
        if value.dim() == 0 or len(value) != clients:
            raise InputError(
                f"{what} has the optimiser buffer '{name}' of shape {tuple(value.shape)}, expected one row for each "
                f"of {clients} clients; resume with what the run began with"
            )
    if state.peers is not None and len(state.peers.mask) != clients:
        raise InputError(
            f"{what} has peers of {len(state.peers.mask)} clients, expected {clients}; "
            "resume with what the run began with"
        )


def signature(tensors: Mapping[str, Tensor]) -> list[str]:
    """Name, shape and dtype of each."""
    return [f"'{name}' {tuple(value.shape)} {str(value.dtype)[6:]}" for name, value in tensors.items()]


def fingerprint(federation: Federation) -> str:
    """SHA-256 of all that a federation holds: inputs, targets, who has which rows, names and true groups.

    Read once for each federation, which nobody changes.
    """
    if federation in _FINGERPRINTS:
        return _FINGERPRINTS[federation]
    digest = hashlib.sha256()
    for field in dataclasses.fields(federation):
        if field.name != "spec":  # how it was asked for, e.g. under which path
            digest.update(field.name.encode())
            _feed(digest, getattr(federation, field.name))
    _FINGERPRINTS[federation] = digest.hexdigest()
    return _FINGERPRINTS[federation]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        digest.update(f"{tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    elif isinstance(value, tuple | list):
        digest.update(f"{len(value)} items".encode())
        for item in value:
            _feed(digest, item)
    elif dataclasses.is_dataclass(value):
        digest.update(type(value).__qualname__.encode())
        _feed(digest, [getattr(value, field.name) for field in dataclasses.fields(value)])
    else:
        digest.update((repr(value) if isinstance(value, _PLAIN) else type(value).__qualname__).encode())


def _described(value: Any) -> str:
    """The name of a class or function, with the plain values it was made with; no addresses."""
    if isinstance(value, partial):
        name, options = value.func.__name__, value.keywords
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        options = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        name, options = getattr(value, "__name__", type(value).__name__), {}
    return f"{name}({', '.join(f'{key}={item!r}' for key, item in options.items() if isinstance(item, _PLAIN))})"


def _cut(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:120]}..."
