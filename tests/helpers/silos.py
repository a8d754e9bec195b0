"""docs/silos.md at work: its steps as printed, its servers beside them, all on this machine and ended at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.helpers.pages import ROOT, Step

PATIENCE = 1800
"""Seconds that one step may take."""


class Place:
    """A folder, the environment that `export` has made, and the servers that are at work."""

    def __init__(self, folder: Path) -> None:
        bin = Path(sys.executable).parent
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        path = {"PATH": f"{bin}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "160"}
        self.folder, self.environment = folder, {**os.environ, **threads, **path}
        self.servers: list[subprocess.Popen[bytes]] = []

    def run(self, step: Step) -> str:
        """What a step prints; servers are begun, and go on."""
        if step.language == "python":
            return self._done([sys.executable, "-c", step.text])
        text = re.sub(r"\s*\\\n\s*", " ", step.text)
        commands = [line for line in text.splitlines() if line]
        if all(command.startswith("export ") for command in commands):
            pairs = (command.removeprefix("export ").split("=", 1) for command in commands)
            self.environment |= {name: value.replace("$PWD", str(self.folder)) for name, value in pairs}
            return ""
        if any(command.startswith(("flower-superlink", "flower-supernode")) for command in commands):
            for command in commands:
                self.serve(command)
            return ""
        return self._done(["bash", "-euc", text])

    def serve(self, command: str) -> subprocess.Popen[bytes]:
        """A server in the background."""
        with (self.folder / f"server-{len(self.servers)}.log").open("wb") as log:
            server = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.servers.append(server)
        time.sleep(10)
        assert server.poll() is None, self.told()
        return server

    def end(self, server: subprocess.Popen[bytes]) -> None:
        """A server and all that it has begun, whatever group these have joined."""
        begun = descendants(server.pid)
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(20)
        for process in {server.pid, *begun, *(child for each in begun for child in descendants(each))}:
            kill(process)
        server.wait()

    def told(self) -> str:
        """The last lines of all servers."""
        logs = sorted(self.folder.glob("server-*.log"))
        return "\n".join(f"{path.name}\n" + "\n".join(path.read_text().splitlines()[-15:]) for path in logs)

    def _done(self, words: list[str]) -> str:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{words[-1]}\n{done.stdout}\n{self.told()}"
        return done.stdout


def descendants(process: int) -> list[int]:
    """All that a process has begun, and what these have."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = list(children.get(process, ()))
    for each in found:
        found += children.get(each, ())
    return found


def kill(process: int) -> None:
    """At once."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


@contextmanager
def place(folder: Path) -> Iterator[Place]:
    """A place whose servers end with the block."""
    here = Place(folder)
    try:
        yield here
    finally:
        for server in reversed(here.servers):
            here.end(server)
