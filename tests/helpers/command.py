"""The `scool` command in this process, and what it leaves in a folder."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from scool_ppl.cli.main import main

TINY = (
    "--federation=permuted:digits:clients=4,groups=2,train=20,test=20",
    *("--rounds=2", "--warmup-epochs=40", "--local-epochs=1", "--executor=stacked", "--quiet"),
)
"""Options of a fit that takes no time."""

FILES = {
    *("clients.csv", "run.json", "history.jsonl", "weights.npz", "graph.graphml"),
    *("graph.png", "weights.png", "history.png", "summary.json"),
}
"""What a run that has ended has in its folder, besides its checkpoints."""


class Answer(NamedTuple):
    """Exit code, standard output and standard error."""

    code: object
    out: str
    err: str


def scool(*arguments: object) -> Answer:
    """What the command answers."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return Answer(stop.value.code, out.getvalue(), err.getvalue())


def fit(folder: Path, *arguments: object) -> Answer:
    """A tiny fit that must succeed."""
    answer = scool("fit", *arguments, *TINY, "--out", folder)
    assert answer.code == 0, answer.err
    return answer


def refused(*arguments: object, code: int = 2) -> str:
    """The one line of a command that must not succeed."""
    answer = scool(*arguments)
    assert answer.code == code, answer
    assert answer.out == ""
    assert answer.err.startswith("scool: ")
    assert answer.err.count("\n") == 1
    assert answer.err.endswith("\n")
    return answer.err


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder, with the bytes of its files."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def rows(run: Path) -> list[dict[str, Any]]:
    """The history of a run."""
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


def bits(run: Path) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """Weights and history of a run, without its times."""
    with np.load(run / "weights.npz") as arrays:
        weights = {name: arrays[name].tobytes() for name in arrays}
    return weights, [{key: value for key, value in row.items() if key != "seconds"} for row in rows(run)]
