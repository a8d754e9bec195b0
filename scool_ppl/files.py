"""Files that others may have tampered with, or that the power may fail on."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

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
