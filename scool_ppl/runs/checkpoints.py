"""Checkpoints: all that a run needs to go on, as verified files that are there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from scool_ppl.base.codec import Tensors, decode, encode
from scool_ppl.base.describe import versions
from scool_ppl.base.files import erase, file_sha256, read_regular, sync, write
from scool_ppl.em.state import EMState
from scool_ppl.errors import InputError, RunError, unknown
from scool_ppl.graph.candidates import Entries
from scool_ppl.runs.formats import FORMAT, upgraded
from scool_ppl.runs.tensors import load as load_shared
from scool_ppl.runs.tensors import save as save_tensors
from scool_ppl.runs.tensors import sent
from scool_ppl.train.contract import Evaluation
from scool_ppl.train.executors.choosing import EXECUTORS

FOLDER, MANIFEST = "checkpoints", "manifest.json"
TENSORS, DATA = "tensors.safetensors", "data.json"
_MATTERS = ("scool_ppl", "torch", "pyro")  # what the bits of a run depend on
_LONGEST_MANIFEST = 2**16
_LOADING = (SafetensorError, ValueError, TypeError, KeyError, RuntimeError, OverflowError, MemoryError)


class Checkpoint(NamedTuple):
    """A run after a round."""

    state: EMState
    trained: Evaluation | None
    """Of the locally trained networks, before mixing; None before the first round."""
    graphs: dict[int, Tensor | Entries]
    """The graphs of the rounds that are kept for the pictures, see `Peers.kept`."""
    history: list[dict[str, Any]]
    facts: dict[str, list[str]]
    """What the run was made of: to be refused where it has changed."""
    executor: str
    threads: int
    partial: bool = False
    """Do the facts lack some, as those of format 1 do?"""


class _Entry(NamedTuple):
    sha256: str
    bytes: int


class _Manifest(NamedTuple):
    format: int
    versions: dict[str, str]
    files: dict[str, _Entry]


def save(run: Path, checkpoint: Checkpoint, *, keep: int) -> Path:
    """Write RUN/checkpoints/round-000012: beside it first, on the disk, then renamed; all but the last `keep` go."""
    parent, number = run / FOLDER, checkpoint.state.round
    target = parent / f"round-{number:06d}"
    temporary = parent / f".new-{target.name}"
    tensors: Tensors = {}
    data = json.dumps(encode(checkpoint, tensors, "")).encode()
    if sent(tensors):
        return target
    try:
        if parent.is_symlink():
            raise NotADirectoryError(20, "it is a symbolic link, expected a folder")
        parent.mkdir(exist_ok=True)
        tidy(run)
        temporary.mkdir()
        write(temporary / DATA, data)
        save_tensors(temporary / TENSORS, tensors)
        sync(temporary / TENSORS)
        files = {name: _entry(temporary / name)._asdict() for name in (DATA, TENSORS)}
        manifest = {"format": FORMAT, "versions": versions(), "files": files}
        write(temporary / MANIFEST, json.dumps(manifest, indent=1).encode())
        sync(temporary)
        _remove(target)  # there is one only where it was damaged
        os.rename(temporary, target)
        sync(parent)
        for old in [path for path in all_checkpoints(run) if _number(path) <= number][:-keep]:
            _remove(old)
    except (OSError, SafetensorError) as error:
        raise RunError(
            f"cannot write '{target}': {getattr(error, 'strerror', None) or error}; the checkpoints before it are "
            "intact, make room or repair the folder and resume the run"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def tidy(run: Path) -> None:
    """Remove what writers that were killed have left."""
    for leftover in (*(run / FOLDER).glob(".new-*"), *(run / FOLDER).glob(".old-*")):
        erase(leftover)


def newest(run: Path, before: float = math.inf, like: Tensor | None = None) -> Checkpoint | None:
    """The last intact checkpoint, None if none was ever written; damaged ones after it are named in a warning each.

    before: of a round before this one. like: a stack that ranks share; then so are those that are read.
    """
    damaged: list[InputError] = []
    for path in reversed([path for path in all_checkpoints(run) if _number(path) < before]):
        try:
            checkpoint = load(path, like)
        except InputError as error:
            damaged.append(error)
            continue
        for damage in damaged:
            warnings.warn(f"{damage}; going on from round {checkpoint.state.round} instead", stacklevel=2)
        return checkpoint
    if damaged:
        raise InputError(f"{damaged[0]}; no other checkpoint is intact, begin the run again")
    return None


def load(path: Path, like: Tensor | None = None) -> Checkpoint:
    """Read and verify one checkpoint; nothing in it is ever executed. like: see `newest`."""
    try:
        if path.is_symlink() or not path.is_dir():
            raise InputError("it is not a folder")
        manifest = _manifest(path / MANIFEST)
        found = {entry.name for entry in path.iterdir()}
        if found != {MANIFEST, TENSORS, DATA} or manifest.files.keys() != {TENSORS, DATA}:
            there = ", ".join(sorted(found))
            listed = ", ".join(sorted(manifest.files))
            raise InputError(f"it holds {there[:80]} and lists {listed[:80]}, expected {DATA}, {TENSORS}, {MANIFEST}")
        content = _verified(path / DATA, manifest.files[DATA])
        tensors = _tensors(path / TENSORS, manifest.files[TENSORS], like)
        data = upgraded(_parsed(content), tensors, manifest.format)
        checkpoint: Checkpoint = decode(Checkpoint, data, tensors, "data")
        _check(checkpoint, _number(path))
    except (OSError, *_LOADING) as error:
        reason = " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())
        raise InputError(f"checkpoint '{path}' cannot be used: {reason}") from error
    for name, own in versions().items():
        written = manifest.versions.get(name)
        if name in _MATTERS and written != own:
            warnings.warn(
                f"checkpoint '{path}' was written by {name} {written}, this is {own}: the last bits may differ",
                stacklevel=3,
            )
    return checkpoint


def all_checkpoints(run: Path) -> list[Path]:
    """The checkpoints' folders, oldest first, damaged or not."""
    parent = run / FOLDER
    if parent.is_symlink():
        raise InputError(f"'{parent}' is a symbolic link, expected a folder; move what it points to here")
    try:
        names = [path for path in parent.iterdir() if re.fullmatch(r"round-[0-9]{6,12}", path.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"cannot read '{parent}': {error.strerror}; expected a readable folder") from error
    return sorted(names, key=_number)


def last_round(run: Path) -> int:
    """The round of the newest checkpoint's name; 0 if there is none."""
    return max((_number(path) for path in all_checkpoints(run)), default=0)


def _manifest(path: Path) -> _Manifest:
    raw = _parsed(read_regular(path, _LONGEST_MANIFEST))
    written = raw.get("format") if isinstance(raw, dict) else None
    if type(written) is int and not 1 <= written <= FORMAT:
        raise InputError(f"it is of format {written}, expected {FORMAT}; use the version of scool_ppl that wrote it")
    manifest: _Manifest = decode(_Manifest, raw, {}, MANIFEST)
    return manifest


def _tensors(path: Path, entry: _Entry, like: Tensor | None) -> Tensors:
    if like is None:
        return safetensors.torch.load(_verified(path, entry))
    if _entry(path) != entry:
        raise InputError(f"{path.name} does not have the size or the SHA-256 that {MANIFEST} promises")
    return load_shared(path, like)


def _verified(path: Path, entry: _Entry) -> bytes:
    content = read_regular(path, entry.bytes)
    if len(content) != entry.bytes:
        raise InputError(f"{path.name} has {len(content)} bytes, expected {entry.bytes}")
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise InputError(f"{path.name} does not have the SHA-256 that {MANIFEST} promises")
    return content


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except RecursionError as error:
        raise InputError("its JSON is nested too deeply") from error


def _check(checkpoint: Checkpoint, number: int) -> None:
    """What types cannot say."""
    state, rounds = checkpoint.state, [row.get("round") for row in checkpoint.history]
    if state.round != number or rounds != list(range(number - len(rounds) + 1, number + 1)):
        raise InputError(f"it is of round {state.round} with history {str(rounds)[:40]}, expected round {number}")
    if checkpoint.executor not in EXECUTORS:
        raise unknown("executor", checkpoint.executor, EXECUTORS)
    verbs = [
        decode(dict[str, float], row.get("seconds"), {}, "seconds of a round").keys() for row in checkpoint.history
    ]
    if any(each != verbs[0] for each in verbs):
        raise InputError("its history has seconds of other verbs in one round than in another")
    clients = {value.shape[:1] for value in state.params.values()}
    if other := [track for track, beside in state.beside.items() if beside.round != number]:
        raise InputError(f"its track {other[0]} is of round {state.beside[other[0]].round}, expected {number}")
    scores = {value.shape for value in checkpoint.trained or ()}
    graphs = {value.shape for value in checkpoint.graphs.values() if isinstance(value, Tensor)}
    tables = [value for value in checkpoint.graphs.values() if isinstance(value, Entries)]
    odd = any(each.values.shape != each.senders.shape or each.values.shape[:1] not in clients for each in tables)
    if scores - clients or graphs - {size + size for size in clients} or odd:
        raise InputError(f"its graphs or scores are not of {sorted(map(tuple, clients))} clients, as its networks are")
    for each in (state, *state.beside.values()):
        _check_peers(each, number)


def _check_peers(state: EMState, number: int) -> None:
    if state.peers is None:
        if number > 0:
            raise InputError(f"it has no table of peers, expected one after round {number}")
        return
    mask, weights = state.peers.mask, state.moments.get("Y")
    if mask.dim() != 2 or weights is None or weights.shape != mask.shape or mask.dtype.is_floating_point:
        raise InputError(f"its table of peers has shape {tuple(mask.shape)}, expected that of the graph")
    for other in (state.peers.senders, state.peers.looked):
        if other is not None and other.shape != mask.shape:
            raise InputError(f"its table of peers has a column of shape {tuple(other.shape)}, {tuple(mask.shape)}")
    components = len(next(iter(state.components.values()), ()))
    if state.peers.components not in (0, components):
        raise InputError(f"its table of peers has {state.peers.components} components, expected {components}")
    senders, seats = state.peers.senders, len(mask) + state.peers.components
    if senders is not None and senders.numel() and not 0 <= int(senders.min()) <= int(senders.max()) < seats:
        raise InputError(f"its table of peers names client {int(senders.max())}, expected 0 to {seats - 1}")


def _entry(path: Path) -> _Entry:
    return _Entry(file_sha256(path), path.stat().st_size)


def _remove(path: Path) -> None:
    """In two steps: a checkpoint half of which is gone never bears its name."""
    if path.is_dir() and not path.is_symlink():
        old = path.with_name(f".old-{path.name}")
        os.rename(path, old)
        path = old
    erase(path)


def _number(path: Path) -> int:
    return int(path.name.removeprefix("round-"))
