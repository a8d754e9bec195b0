"""What was measured once is known to the next process on this machine, and to nobody where it cannot be kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scool_ppl.train.executors import choosing, remembered

CHOOSE = """
from scool_ppl.train.executors import choosing
import time
seconds = {"a": %s, "b": %s}
print(choosing.fastest("case", {name: (lambda: time.sleep(seconds[name])) for name in ("a", "b")}))
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a process that has measured nothing."""
    monkeypatch.setenv("SCOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(choosing, "_MEASURED", {})
    return tmp_path / "cache" / "executors.json"


def test_another_process_chooses_the_same(notes: Path) -> None:
    remembered.remember("case", "a", {"a": 1.0, "b": 2.0})
    assert choosing.fastest("case", {"a": lambda: pytest.fail("measured"), "b": lambda: pytest.fail("measured")}) == "a"
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import torch\ntorch.set_num_threads({torch.get_num_threads()})\n{CHOOSE % (0.02, 0.0)}",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert found.stdout.strip() == "a", "b is faster there, a was chosen here"


def test_a_case_of_more_threads_is_another_case(notes: Path) -> None:
    remembered.remember("case", "a", {})
    torch.set_num_threads(2)
    try:
        assert remembered.recall("case") is None
    finally:
        torch.set_num_threads(1)
    assert remembered.recall("case") == "a"
    assert remembered.recall("another") is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b'{"x": 1}'])
def test_a_file_that_is_no_such_file_is_as_none(notes: Path, content: bytes) -> None:
    notes.parent.mkdir()
    notes.write_bytes(content)
    assert remembered.recall("case") is None
    remembered.remember("case", "b", {"a": 2.0, "b": 1.0})
    assert remembered.recall("case") == "b"


def test_what_is_remembered_no_longer_is_measured(notes: Path) -> None:
    remembered.remember("case", "gone", {})
    assert choosing.fastest("case", {"only": lambda: None}) == "only"
    assert remembered.recall("case") == "only"


@pytest.mark.parametrize("why", ["no folder", "a folder of that name", "nobody may write there"])
def test_a_cache_that_cannot_be_written_stops_nobody(
    why: str, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "no folder":
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("SCOOL_CACHE", str(tmp_path / "file" / "folder"))
    elif why == "a folder of that name":
        notes.mkdir(parents=True)
    else:
        monkeypatch.setenv("SCOOL_CACHE", "/proc")
    assert choosing.fastest("case", {"only": lambda: None}) == "only"
    assert remembered.recall("case") is None


def test_the_oldest_cases_are_forgotten(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "_MOST", 2)
    for case in ("first", "second", "third"):
        remembered.remember(case, "a", {"a": 1.0})
    assert [remembered.recall(case) for case in ("first", "second", "third")] == [None, "a", "a"]
    (entry,) = [each for each in json.loads(notes.read_text()).values() if each["case"] == "third"]
    assert entry["seconds"] == {"a": 1.0}


def test_it_is_in_the_users_cache_unless_a_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SCOOL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert remembered.file() == tmp_path / "scool_ppl" / "executors.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert remembered.file() == tmp_path / ".cache" / "scool_ppl" / "executors.json"


def test_a_damaged_note_is_as_none(notes: Path) -> None:
    remembered.remember("case", "a", {})
    known = json.loads(notes.read_text())
    for damage in ([], {"faster": []}, {"faster": {"a": 1}}):
        notes.write_text(json.dumps(dict.fromkeys(known, damage)))
        assert remembered.recall("case") is None
        choosing._MEASURED.clear()
        assert choosing.fastest("case", {"a": lambda: None}) == "a"


def test_a_network_of_a_thousand_layers_does_not_fill_the_file(notes: Path) -> None:
    for number in range(3):
        remembered.remember(f"{number} " + "Linear(1, 1) " * 10**5, "a", {})
    assert len(notes.read_bytes()) < 5000
    assert remembered.recall("1 " + "Linear(1, 1) " * 10**5) == "a"
