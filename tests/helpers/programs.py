"""Programs and commands as a user runs them, in this process: no new Python that imports torch for three seconds."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyro
import pytest
import torch

from scool_ppl.cli import main


def run_program(
    path: Path, folder: Path, arguments: Sequence[str] = (), names: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`python PATH ARGUMENTS` inside `folder`, after what gave `names`: its names. Warnings are errors, as in all tests."""
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        patch.chdir(folder)
        patch.setattr(sys, "argv", [str(path), *arguments])
        patch.setattr(sys, "path", [str(path.parent), *sys.path])
        found = runpy.run_path(str(path), {**(names or {})}, run_name="__main__")
    assert not pyro.get_param_store().keys(), f"{path.name} has left parameters in Pyro's global store"
    return {name: value for name, value in found.items() if not name.startswith("__")}


def run_torchrun(arguments: Sequence[str], folder: Path) -> int:
    """`torchrun ARGUMENTS` inside `folder`: its exit code, after what it has printed."""
    words = [sys.executable, "-m", "torch.distributed.run", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    print(done.stdout, done.stderr)
    return done.returncode


def run_command(arguments: Sequence[str], folder: Path) -> int:
    """`scool ARGUMENTS` inside `folder`: its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
    return end.value.code if isinstance(end.value.code, int) else int(end.value.code is not None)
