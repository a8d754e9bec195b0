"""What was found to be faster on this machine, on its disk: another process chooses the same, and gives the same bits."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from scool_ppl.base.files import read_regular, replacing

_MOST, _SHOWN = 1000, 300
"""Cases that are kept, the oldest are forgotten; and how much of a case's text, for whoever reads the file."""
_LIMIT = 2**22


def file() -> Path:
    """Where it is kept: in the folder SCOOL_CACHE, else that of the user's caches."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SCOOL_CACHE") or Path(cache) / "scool_ppl") / "executors.json"


def recall(case: str) -> str | None:
    """What was chosen for a case, None if nothing was."""
    found = _read().get(_key(case))
    faster = found.get("faster") if isinstance(found, dict) else None
    return faster if isinstance(faster, str) else None


def remember(case: str, faster: str, seconds: dict[str, float]) -> None:
    """Write down what was chosen for a case; where nothing can be written it is not remembered."""
    notes = _read()
    notes[_key(case)] = {"faster": faster, "seconds": seconds, "case": case[:_SHOWN], "machine": _machine()}
    with suppress(OSError, RuntimeError, ValueError):  # among the latter an InputError of `replacing`
        file().parent.mkdir(parents=True, exist_ok=True)
        with replacing(file()) as temporary:
            temporary.write_text(json.dumps(dict(list(notes.items())[-_MOST:]), indent=1) + "\n")


def _read() -> dict[str, Any]:
    """All notes; none where there is no file, or another one."""
    with suppress(OSError, ValueError, RuntimeError):
        found = json.loads(read_regular(file(), _LIMIT))
        return found if isinstance(found, dict) else {}
    return {}


def _key(case: str) -> str:
    return hashlib.sha256(f"{case}\n{_machine()}".encode()).hexdigest()[:24]


def _machine() -> str:
    """What speed depends on besides the case."""
    parts = [platform.machine(), f"{os.cpu_count()} cores", f"{torch.get_num_threads()} threads"]
    devices = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    return ", ".join([*parts, *devices, f"torch {torch.__version__}", torch.backends.cpu.get_cpu_capability()])
