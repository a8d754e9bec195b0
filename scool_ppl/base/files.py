"""Files that others may have tampered with, that the power may fail on, and that are replaced in one step."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import secrets
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from scool_ppl.errors import InputError


def read_regular(path: Path, limit: int | None = None) -> bytes:
    """The bytes of a plain file of at most `limit` bytes; not through a link, and never waiting for a pipe."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path.name} is not a plain file")
        if limit is not None and status.st_size > limit:
            raise InputError(f"{path.name} has {status.st_size} bytes, expected {limit} at most")
        return file.read()


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """The object that a plain file holds as JSON; `remedy` is what can be done where it does not."""
    try:
        content = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read {path}: {error}; {remedy}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds {type(content).__name__}, expected an object; {remedy}")
    return content


def write(path: Path, content: bytes) -> None:
    """The bytes as a file, on the disk when this returns."""
    with path.open("wb") as file:
        file.write(content)
    sync(path)


def sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def erase(path: Path) -> None:
    """A folder with all that is in it, a file, or a link but not what it points to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that replaces it once the block has ended well, and is removed otherwise."""
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot write '{path}': {reason}; expected a folder that exists and is writable") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_npz(path: str | Path, arrays: Mapping[str, np.ndarray[Any, Any]], *, compressed: bool = False) -> None:
    """Write the arrays at once: a reader finds the old file or the whole new one."""
    with replacing(Path(path)) as temporary, temporary.open("wb") as file:
        (np.savez_compressed if compressed else np.savez)(file, **dict[str, Any](arrays))


@contextmanager
def opened_npz(path: Path, remedy: str) -> Iterator[Mapping[str, np.ndarray[Any, Any]]]:
    """The arrays of an .npz file, each read when it is asked for, nothing unpickled; `remedy` is what can be done where it
    is damaged, or no such file.
    """
    try:
        with path.open("rb") as file:
            if file.read(6) == b"\x93NUMPY":
                raise InputError(f"{path} holds a single array, expected arrays by name; use numpy.savez")
            if not zipfile.is_zipfile(file):
                raise InputError(f"cannot read {path}: it is no .npz file, or not all of one; {remedy}")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                yield arrays
    except InputError:
        raise
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"cannot read {path}: {reason}; {remedy}") from error


def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV, with every column that one of them has; nothing where a row has none, or has None."""
    rows = list(rows)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().rstrip("\n")


def file_sha256(*paths: Path) -> str:
    """SHA-256 of a file, or of the contents of several, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()
