"""Checkpoints: what is written is read back bit for bit, is there whole or not at all, and damage is refused in a line."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import resource
import signal
import struct
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scool_ppl.em.state import EMState
from scool_ppl.errors import InputError, RunError
from scool_ppl.graph.candidates import Peers
from scool_ppl.runs import checkpoints
from scool_ppl.runs.checkpoints import DATA, MANIFEST, TENSORS, Checkpoint
from scool_ppl.train import Remembered
from scool_ppl.train.contract import Evaluation


def quiet_nan(payload: int) -> Tensor:
    """NaNs that differ in their bits only."""
    return torch.tensor([0x7FF8000000000000 + payload, 1], dtype=torch.int64).view(torch.float64)


def checkpoint(round: int = 1) -> Checkpoint:
    """One of everything that a state may hold."""
    weight = torch.arange(24.0).view(2, 3, 4) + round
    state = EMState(
        params={"1.weight": weight, "1.bias": torch.zeros(2, 0), "half": torch.ones(2, 1).bfloat16()},
        initial={"1.weight": weight},  # the same memory under two names
        optimizer={"started": torch.tensor([True, False]), "step": torch.tensor(3.0)},
        moments={"Y": torch.tensor([[0.0, 0.1], [-0.0, 0.3]], dtype=torch.float64)},
        q={},
        prior={"B": torch.eye(2, dtype=torch.float64), "count": torch.tensor(7)},
        peers=Peers(torch.ones(2, 2, dtype=torch.bool), torch.tensor([[0, 1], [1, 0]]), None),
        memory={
            "mixture": Remembered(quiet_nan(5), (0, 1)),
            "a/b": Remembered(weight.permute(2, 0, 1), ()),
            "spread": Remembered(torch.ones(2, 1).expand(2, 3), (0,)),
        },
        round=round,
        seed=-3,
    )
    evaluation = Evaluation(*(torch.rand(3, 2, generator=torch.Generator().manual_seed(0))))
    rows: list[dict[str, Any]] = [
        {"round": number, "loss": 1 / 3, "elbo": None, "seconds": {"mix": 0.5}} for number in range(1, round + 1)
    ]
    return Checkpoint(state, evaluation, {1: torch.eye(2)}, rows, {"client": ["a", "ü"]}, "stacked", 1)


def tensors(value: Any, path: str = "") -> dict[str, Tensor]:
    """All tensors in a value, by path, found without the code under test."""
    if isinstance(value, Tensor):
        return {path: value}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in tensors(item, f"{path}/{key}").items()}
    return {}


def raw(value: Tensor) -> bytes:
    return value.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def same(found: Checkpoint, expected: Checkpoint) -> None:
    ours, theirs = tensors(found), tensors(expected)
    assert list(ours) == list(theirs), "the order of names matters to sums over them"
    for path, value in theirs.items():
        assert (ours[path].dtype, ours[path].shape) == (value.dtype, value.shape), path
        assert raw(ours[path]) == raw(value), path
    plain = [
        (c.history, c.facts, c.executor, c.threads, c.state.round, c.state.seed, list(c.graphs))
        for c in (found, expected)
    ]
    assert plain[0] == plain[1]
    assert found.state.peers is not None
    assert found.state.peers.looked is None


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with the checkpoints of rounds 1 and 2."""
    for round in (1, 2):
        checkpoints.save(tmp_path, checkpoint(round), keep=3)
    return tmp_path


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_everything_comes_back_bit_for_bit(run: Path) -> None:
    found = checkpoints.newest(run)
    assert found is not None
    same(found, checkpoint(2))
    assert found.state.memory["a/b"].value.stride() == checkpoint(2).state.memory["a/b"].value.stride(), (
        "rounding may depend on it"
    )
    assert raw(found.state.memory["mixture"].value) != raw(quiet_nan(6)), "the comparison sees the payload of a NaN"
    assert found.state.params["1.weight"].data_ptr() != found.state.initial["1.weight"].data_ptr()
    assert torch.equal(torch.signbit(found.state.moments["Y"]), torch.signbit(checkpoint(2).state.moments["Y"]))


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    for round in range(1, 6):
        checkpoints.save(tmp_path, checkpoint(round), keep=2)
        assert names(tmp_path) == [f"round-{number:06d}" for number in (round - 1, round) if number]
    assert {path.name for path in (tmp_path / "checkpoints" / "round-000005").iterdir()} == {MANIFEST, DATA, TENSORS}


def test_the_manifest_tells_sizes_sums_and_versions(run: Path) -> None:
    folder = run / "checkpoints" / "round-000002"
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["format"] == 3
    assert {"scool_ppl", "torch", "pyro"} <= set(manifest["versions"])
    for name in (DATA, TENSORS):
        content = (folder / name).read_bytes()
        assert manifest["files"][name] == {"sha256": sha256(content).hexdigest(), "bytes": len(content)}


OPERATIONS = ("fsync", "rename", "mkdir", "rmdir", "unlink", "open")


def test_killed_at_any_operation_the_last_or_the_one_before_it_is_whole(tmp_path: Path) -> None:
    """A child is killed just before its n-th call to the system, for every n there is."""
    for round in (1, 2):
        checkpoints.save(tmp_path, checkpoint(round), keep=2)
    seen = set()
    for limit in range(1, 200):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                calls = itertools.count(1)
                for name in OPERATIONS:
                    setattr(os, name, counted(getattr(os, name), calls, limit))
                checkpoints.save(tmp_path, checkpoint(3), keep=2)
                code = 0
            finally:
                os._exit(code)
        status = os.waitpid(child, 0)[1]
        found = checkpoints.newest(tmp_path)  # a damaged one would be a warning, which is an error here
        assert found is not None
        same(found, checkpoint(found.state.round))
        seen.add(found.state.round)
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert seen == {2, 3}
    assert limit > 15
    assert names(tmp_path) == ["round-000002", "round-000003"], "what killed writers left was cleared away"


def counted(call: Callable[..., Any], calls: Iterator[int], limit: int) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if next(calls) >= limit:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)

    return wrapped


def test_a_full_disk_costs_nothing_that_was_there(run: Path) -> None:
    """The system itself refuses to let files grow, as on a full disk."""
    big = checkpoint(3)
    big.state.params["1.weight"] = torch.zeros(2, 100_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        with pytest.raises(RunError, match=r"cannot write '.*round-000003'.*File too large.*intact.*resume"):
            checkpoints.save(run, big, keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert names(run) == ["round-000001", "round-000002"]
    same(checkpoints.load(run / "checkpoints" / "round-000002"), checkpoint(2))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(RunError, match="cannot write"):
        checkpoints.save(tmp_path, checkpoint(), keep=1)
    with pytest.raises(InputError, match="cannot read"):
        checkpoints.newest(tmp_path)
    (tmp_path / "checkpoints").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="symbolic link"):
        checkpoints.save(tmp_path, checkpoint(), keep=1)
    with pytest.raises(InputError, match="symbolic link"):
        checkpoints.newest(tmp_path)
    assert not list((tmp_path / "elsewhere").iterdir())


class Canary:
    """Unpickled, it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def header(length: int, text: str, tail: bytes = b"") -> bytes:
    return struct.pack("<Q", length) + text.encode() + tail


def entry(shape: list[int], begin: int, end: int) -> str:
    return json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}})


def rewritten(folder: Path, name: str, content: bytes) -> None:
    """A file with a manifest that agrees: sums alone do not protect."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][name] = {"sha256": sha256(content).hexdigest(), "bytes": len(content)}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def data(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = json.loads((folder / DATA).read_text())
        replaced = change(content)
        rewritten(folder, DATA, json.dumps(content if replaced is None else replaced).encode())

    return damage


def manifest(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = json.loads((folder / MANIFEST).read_text())
        replaced = change(content)
        (folder / MANIFEST).write_text(json.dumps(content if replaced is None else replaced))

    return damage


def linked(folder: Path) -> None:
    (folder / DATA).rename(folder.parents[1] / "outside.json")
    (folder / DATA).symlink_to(folder.parents[1] / "outside.json")


def piped(folder: Path) -> None:
    (folder / DATA).unlink()
    os.mkfifo(folder / DATA)


def pickled(folder: Path) -> None:
    rewritten(folder, TENSORS, pickle.dumps(Canary(folder.parents[1] / "canary")))


def torch_file(folder: Path) -> None:
    torch.save({"x": Canary(folder.parents[1] / "canary")}, folder / "archive")
    rewritten(folder, TENSORS, (folder / "archive").read_bytes())
    (folder / "archive").unlink()


def flipped(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)

    return damage


def cut(name: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size // 2)


def field(path: str, value: Any) -> Callable[[Path], None]:
    def change(content: Any) -> None:
        *way, last = path.split("/")
        for step in way:
            content = content[step]
        content[last] = value

    return data(change)


CORPUS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no manifest": (lambda folder: (folder / MANIFEST).unlink(), "No such file"),
    "no tensors": (lambda folder: (folder / TENSORS).unlink(), TENSORS),
    "empty folder": (lambda folder: [path.unlink() for path in folder.iterdir()], "No such file"),
    "extra file": (lambda folder: (folder / "extra.py").write_text("x"), "extra.py"),
    "tensors cut": (cut(TENSORS), "bytes, expected"),
    "data cut": (cut(DATA), "bytes, expected"),
    "manifest cut": (cut(MANIFEST), "delimiter|char"),
    "tensors flipped": (flipped(TENSORS), "SHA-256"),
    "data flipped": (flipped(DATA), "SHA-256"),
    "link": (linked, "symbolic links"),
    "pipe": (piped, "not a plain file"),
    "pickle": (pickled, "header"),
    "torch.save": (torch_file, "header"),
    "header of a terabyte": (lambda folder: rewritten(folder, TENSORS, header(2**40, "{}")), "header"),
    "header beyond int64": (lambda folder: rewritten(folder, TENSORS, b"\xff" * 16), "header"),
    "tensor of a terabyte": (
        lambda folder: rewritten(folder, TENSORS, header(len(entry([2**40], 0, 2**42)), entry([2**40], 0, 2**42))),
        "header|metadata|Metadata",
    ),
    "format of tomorrow": (manifest(lambda content: content.update(format=99)), "of format 99, expected 3"),
    "manifest is a list": (manifest(lambda content: [content]), "a list, expected"),
    "manifest lacks a file": (manifest(lambda content: content["files"].pop(DATA) and content), "data.json"),
    "manifest names a path": (
        manifest(lambda content: content["files"].update({"../../run.json": content["files"][DATA]})),
        "run.json",
    ),
    "size is a text": (manifest(lambda content: content["files"][DATA].update(bytes="9")), "expected int"),
    "format is true": (manifest(lambda content: content.update(format=True)), "True, expected int"),
    "huge manifest": (lambda folder: (folder / MANIFEST).write_text(" " * 2**17 + "{}"), "at most"),
    "deep manifest": (lambda folder: (folder / MANIFEST).write_text("[" * 30_000), "nested too deeply"),
    "deep data": (lambda folder: rewritten(folder, DATA, b"[" * 10**6), "nested too deeply"),
    "data is a list": (data(lambda content: [content]), "a list, expected Checkpoint"),
    "data is not text": (lambda folder: rewritten(folder, DATA, b"\xff\xfe{}"), "Expecting value"),
    "round is NaN": (field("state/round", float("nan")), "nan, expected int"),
    "round is another": (field("state/round", 7), "expected round 2"),
    "seed is a float": (field("state/seed", 1.5), "1.5, expected int"),
    "unknown field": (field("state/code", "import os"), "'code', expected only"),
    "missing field": (data(lambda content: content["state"].pop("params") and content), "lacks params"),
    "unknown tensor": (field("state/params/1.bias", {"tensor": "nowhere"}), "name of a tensor"),
    "tensor is a number": (field("state/params/1.bias", 3), "name of a tensor"),
    "odd order": (field("state/params/1.bias", {"tensor": "state/params/1.bias", "order": [0, 9]}), "order"),
    "odd device": (field("state/params/1.bias", {"tensor": "state/params/1.bias", "device": "moon"}), "moon"),
    "history of another round": (field("history", [{"round": 5}]), "history"),
    "history of texts": (field("history", ["x"]), "a str|'x'"),
    "history without seconds": (field("history", [{"round": 1}, {"round": 2}]), "seconds of a round is None"),
    "history of other verbs": (
        field("history", [{"round": 1, "seconds": {}}, {"round": 2, "seconds": {"mix": 1}}]),
        "other verbs",
    ),
    "no table of peers": (field("state/peers", None), "no table of peers"),
    "graph of other clients": (field("graphs", {"1": {"tensor": "state/params/1.weight"}}), "graphs or scores"),
    "scores of other clients": (field("trained/loss", {"tensor": "graphs/1"}), "graphs or scores"),
    "odd executor": (field("executor", "moon"), "unknown executor 'moon'"),
    "graph of round x": (field("graphs", {"x": {"tensor": "graphs/1"}}), "whole number"),
}


@pytest.mark.parametrize("case", CORPUS)
def test_damage_is_refused_in_one_line_and_the_one_before_is_used(run: Path, case: str) -> None:
    damage, words = CORPUS[case]
    folder = run / "checkpoints" / "round-000002"
    damage(folder)
    with pytest.raises(InputError, match=rf"checkpoint '.*round-000002' cannot be used: .*({words})") as refusal:
        checkpoints.load(folder)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400
    with pytest.warns(UserWarning, match="round-000002.*going on from round 1 instead"):
        found = checkpoints.newest(run)
    assert found is not None
    same(found, checkpoint(1))
    for path in (run / "checkpoints" / "round-000001").iterdir():
        path.write_bytes(b"")
    with pytest.raises(InputError, match="no other checkpoint is intact"):
        checkpoints.newest(run)
    assert not (run / "canary").exists()


def test_the_canary_sings(tmp_path: Path) -> None:
    """Otherwise its silence would mean nothing."""
    pickle.loads(pickle.dumps(Canary(tmp_path / "canary")))
    assert (tmp_path / "canary").exists()


def test_a_damaged_one_is_replaced_by_a_good_one(run: Path) -> None:
    flipped(DATA)(run / "checkpoints" / "round-000002")
    checkpoints.save(run, checkpoint(2), keep=2)
    same(checkpoints.load(run / "checkpoints" / "round-000002"), checkpoint(2))
    assert names(run) == ["round-000001", "round-000002"]


def test_what_lies_about_in_the_place_of_leftovers_is_no_obstacle(run: Path) -> None:
    (run / "elsewhere").mkdir()
    (run / "elsewhere" / "mine").write_text("kept")
    (run / "checkpoints" / ".new-round-000003").write_text("a file")
    (run / "checkpoints" / ".old-round-000001").symlink_to(run / "elsewhere")
    (run / "checkpoints" / ".new-x").symlink_to(run / "nowhere")
    checkpoints.save(run, checkpoint(3), keep=3)
    assert names(run) == ["round-000001", "round-000002", "round-000003"]
    assert (run / "elsewhere" / "mine").read_text() == "kept"


def test_all_files_can_be_read_by_the_same_people(run: Path) -> None:
    modes = {path.stat().st_mode for path in (run / "checkpoints" / "round-000002").iterdir()}
    assert len(modes) == 1


def test_clients_that_are_not_there_are_refused(run: Path) -> None:
    bad = checkpoint(3)
    assert bad.state.peers is not None
    senders = torch.tensor([[0, 2], [1, 0]])
    path = checkpoints.save(run, bad._replace(state=bad.state._replace(peers=Peers(senders >= 0, senders))), keep=1)
    with pytest.raises(InputError, match="names client 2, expected 0 to 1"):
        checkpoints.load(path)


def test_other_versions_are_told(run: Path) -> None:
    manifest(lambda content: content["versions"].update(torch="1.0"))(run / "checkpoints" / "round-000002")
    with pytest.warns(UserWarning, match=r"written by torch 1\.0, this is .*: the last bits may differ"):
        assert checkpoints.newest(run) is not None


@pytest.mark.parametrize("name", [MANIFEST, DATA, TENSORS])
def test_no_flipped_bit_goes_unseen(tmp_path: Path, name: str) -> None:
    """Of any byte: it is refused, or what is read is the same (only versions and blanks of the manifest are)."""
    path = checkpoints.save(tmp_path, checkpoint(1), keep=1)
    whole = (path / name).read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 150)):
        (path / name).write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            found = checkpoints.load(path)
        except (InputError, UserWarning):  # refused, or told to be of another version
            continue
        assert name == MANIFEST
        same(found, checkpoint(1))
