"""A program: fits a model again and again, is killed somewhere each time, resumes, and prints what then differs.

Importing torch and Pyro takes seconds, so it is done once and every fit runs in a fork.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from scool_ppl.data.federation import Federation
from scool_ppl.data.specs import load_federation
from scool_ppl.em.em import EM
from scool_ppl.runs import checkpoints
from scool_ppl.runs.folder import HISTORY, SUMMARY, Run
from scool_ppl.workbench import settings as workflow
from scool_ppl.workbench.resume import resume
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.workbench import Workbench
from scool_ppl.zoo.load import load_model
from tests.helpers.small import brief

ROUNDS = 3
SETTINGS = Settings(
    rounds=ROUNDS, warmup_epochs=5, local_epochs=1, momentum=0.5, batch_size=5, executor="stacked", network="mlp"
)


def federation() -> Federation:
    return load_federation("permuted:digits:clients=4,groups=2,train=20,test=20,order=listed", seed=0)


def fit(folder: Path) -> None:
    Workbench(federation(), SETTINGS, progress=False).fit("scool_sbm", {"blocks": 3}, run=folder, baseline=True)


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def when(holder: Any, name: str, due: Callable[..., bool], last_words: Callable[..., object] | None = None) -> None:
    """Kill the process when this function is called and `due` says so: after the call, or after `last_words` instead."""
    real = getattr(holder, name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if due(*arguments, **options):
            (last_words or real)(*arguments, **options)
            die()
        return real(*arguments, **options)

    setattr(holder, name, wrapped)


def verb(name: str) -> Callable[[], None]:
    """In the second round, whatever the arguments of the verb are."""
    calls = iter(range(1, 100))
    return lambda: when(EM, name, lambda *_: next(calls) == 2)


def half_a_manifest(path: Path, content: bytes) -> None:
    path.write_bytes(content[: len(content) // 2])


def half_a_row(run: Run, row: Any, graph: object) -> None:
    with (run.path / HISTORY).open("a") as file:
        file.write(json.dumps(row)[:50])


def steps() -> Callable[..., bool]:
    calls = iter(range(1, 100))
    return lambda *_: next(calls) == ROUNDS + 2


POINTS: dict[str, Callable[[], None]] = {
    **{name: verb(name) for name in ("train", "look", "infer", "mix", "evaluate_both")},
    "first checkpoint": lambda: when(checkpoints, "save", lambda run, content, keep: content.state.round == 0, die),
    "half a checkpoint": lambda: when(
        checkpoints, "write", lambda path, content: "2/manifest" in str(path), half_a_manifest
    ),
    "before the rename": lambda: when(os, "rename", lambda old, new: str(old).endswith(".new-round-000002"), die),
    "after the rename": lambda: when(os, "rename", lambda old, new: str(old).endswith(".new-round-000002")),
    "during the cleanup": lambda: when(os, "rename", lambda old, new: ".old-" in str(new)),
    "half a row of history": lambda: when(Run, "record", lambda run, row, graph: row["round"] == 2, half_a_row),
    "after the row": lambda: when(Run, "record", lambda run, row, graph: row["round"] == 2),
    "baseline": lambda: when(EM, "step", steps()),
    "before the summary": lambda: when(Run, "write_json", lambda run, name, content: name == SUMMARY, die),
    "before the pictures": lambda: when(Run, "draw", lambda run: True, die),
}


def forked(work: Callable[[], object], error: Path) -> int:
    """The status of a child that does the work; what it raised is in the file."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            error.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def timeless(row: Any) -> Any:
    return {key: value for key, value in row.items() if "seconds" not in key}


def outcome(folder: Path) -> dict[str, object]:
    """What must be equal: all state bit for bit, history and summary without their times."""
    last = folder / "checkpoints" / f"round-{ROUNDS:06d}"
    data = json.loads((last / checkpoints.DATA).read_text())
    return {
        "tensors": (last / checkpoints.TENSORS).read_bytes().hex(),
        "data": {**data, "history": [timeless(row) for row in data["history"]]},
        "history": [timeless(json.loads(line)) for line in (folder / HISTORY).read_text().splitlines()],
        "summary": timeless(json.loads((folder / SUMMARY).read_text())),
        "graph": (folder / "graph.graphml").read_text(),
        "files": sorted(path.name for path in folder.rglob("*") if path.name != "error"),
        "settings": json.loads((folder / "run.json").read_text()),
    }


def go_until(point: str, folder: Path, again: bool) -> None:
    POINTS[point]()
    if again:
        resume(folder, progress=False)
    else:
        fit(folder)


def attempt(folder: Path, kills: list[str], expected: dict[str, object]) -> str:
    """Killed here, then there, then left in peace; the first thing that is wrong, or nothing."""
    error = folder.with_suffix(".error")
    for number, point in enumerate(kills):
        status = forked(partial(go_until, point, folder, number > 0), error)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            return f"not killed at {point}: {error.read_text() if error.exists() else status}"
    if forked(lambda: resume(folder, progress=False), error) != 0:
        return f"cannot resume: {error.read_text()}"
    found = outcome(folder)
    different = [name for name in expected if found[name] != expected[name]]
    shutil.rmtree(folder)
    return f"differs in {different}" if different else ""


def main(scratch: Path) -> None:
    torch.set_num_threads(1)
    Run.draw = lambda self: []  # type: ignore[method-assign]  # pictures take longer than all the rest
    workflow.load_model = lambda *names, **choices: brief(load_model(*names, **choices))
    fit(scratch / "whole")  # in this process: what is imported late is imported once, not in every fork
    expected = outcome(scratch / "whole")
    cases = {point: [point] for point in POINTS} | {"mix, then train": ["mix", "train"]}
    print(json.dumps({name: attempt(scratch / name, kills, expected) for name, kills in cases.items()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
