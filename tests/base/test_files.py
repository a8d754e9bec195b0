"""Files: replaced in one step or left as they were, read only where they are plain files of a known size."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import numpy as np
import pytest

from scool_ppl.base.files import (
    csv_text,
    erase,
    file_sha256,
    read_json,
    read_regular,
    replacing,
    sync,
    write,
    write_npz,
)
from scool_ppl.errors import InputError
from tests.helpers.refusals import refuses


def test_a_file_is_replaced_by_what_was_written_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as temporary:
        assert (temporary.parent, temporary.suffix) == (path.parent, ".txt"), "a rename must not cross file systems"
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (OSError(28, "No space left on device"), InputError),
        (RuntimeError("of the block"), RuntimeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_write_that_ends_badly_leaves_the_old_file_and_no_other(
    tmp_path: Path, error: BaseException, found: type[BaseException]
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(found) as caught:
        half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    if found is InputError:
        assert str(caught.value) == (
            f"cannot write '{path}': No space left on device; expected a folder that exists and is writable"
        )


def test_npz_round_trip_and_no_partial_file(tmp_path: Path) -> None:
    arrays = {"inputs": np.eye(3), "targets": np.arange(3), "names": np.array(["a", "ü", ""])}
    for compressed in (False, True):
        write_npz(tmp_path / "a.npz", arrays, compressed=compressed)
        with np.load(tmp_path / "a.npz", allow_pickle=False) as back:
            assert sorted(back) == sorted(arrays)
            assert all(np.array_equal(back[name], arrays[name]) for name in arrays)
        assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_a_compressed_npz_is_smaller(tmp_path: Path) -> None:
    for name, compressed in (("plain", False), ("compressed", True)):
        write_npz(tmp_path / name, {"x": np.zeros(10_000)}, compressed=compressed)
    assert (tmp_path / "compressed").stat().st_size < 1000 < 80_000 < (tmp_path / "plain").stat().st_size


def test_npz_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*expected a folder that exists"):
        write_npz(tmp_path / "missing" / "a.npz", {"inputs": np.eye(3)})
    assert list(tmp_path.iterdir()) == []


def test_only_plain_files_of_the_allowed_size_are_read(tmp_path: Path) -> None:
    plain, link, pipe = tmp_path / "plain", tmp_path / "link", tmp_path / "pipe"
    write(plain, b"12345")
    assert read_regular(plain) == read_regular(plain, limit=5) == b"12345"
    with pytest.raises(InputError, match="plain has 5 bytes, expected 4 at most"):
        read_regular(plain, limit=4)
    link.symlink_to(plain)
    with pytest.raises(OSError, match="symbolic links"):
        read_regular(link)
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="pipe is not a plain file"):
        read_regular(pipe)  # waits for a writer for ever if it is opened as a file is
    with pytest.raises(OSError, match="s a directory"):
        read_regular(tmp_path)


@pytest.mark.parametrize(
    ("content", "found"),
    [('{"a": ', "cannot read"), ("[1]", "holds list, expected an object"), ("[" * 100_000, "cannot read")],
    ids=["cut short", "a list", "too deep"],
)
def test_json_that_is_no_object_is_one_line_with_a_remedy(tmp_path: Path, content: str, found: str) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": [1]}')
    assert read_json(path, "repeat the run") == {"a": [1]}
    path.write_text(content)
    refuses(lambda: read_json(path, "repeat the run"), found)
    refuses(lambda: read_json(path, "repeat the run"), "; repeat the run")
    path.unlink()
    refuses(lambda: read_json(path, "repeat the run"), f"cannot read {path}")


def test_what_is_written_is_on_the_disk_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write(tmp_path / "a", b"123")
    assert synced == [((tmp_path / "a").stat().st_ino, 3)]
    sync(tmp_path)
    assert synced[1][0] == tmp_path.stat().st_ino


def test_erasing_takes_folders_files_and_links_but_not_what_these_point_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "mine").write_text("mine")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "link").symlink_to(kept)
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(kept)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    for name in ("folder", "file", "link", "broken", "absent"):
        erase(tmp_path / name)
    assert list(tmp_path.iterdir()) == [kept]
    assert (kept / "mine").read_text() == "mine"


def test_the_digest_is_that_of_the_standard(tmp_path: Path) -> None:
    """The examples of FIPS 180-2."""
    (tmp_path / "abc").write_bytes(b"abc")
    (tmp_path / "million").write_bytes(b"a" * 1_000_000)
    assert file_sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_sha256(tmp_path / "million") == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"


def test_rows_as_csv_have_every_column_and_gaps() -> None:
    rows = [{"client": 'a, "b"', "accuracy": 0.1 + 0.2}, {"client": "c", "accuracy": None, "more": 3}]
    found = list(csv.DictReader(io.StringIO(csv_text(rows))))
    assert found == [
        {"client": 'a, "b"', "accuracy": "0.30000000000000004", "more": ""},
        {"client": "c", "accuracy": "", "more": "3"},
    ]
