"""A run that was interrupted goes on bit for bit, and only as the run that it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scool_ppl.base.signals import Interrupted
from scool_ppl.em.em import EM
from scool_ppl.em.model import Schedule
from scool_ppl.errors import InputError, RunError
from scool_ppl.runs import checkpoints
from scool_ppl.runs.folder import Run
from scool_ppl.train import Remembered
from scool_ppl.train.clients import Clients
from scool_ppl.train.networks import MLP
from scool_ppl.zoo.load import load_model, model_path
from tests.helpers.command import TINY, bits, contents, refused, scool
from tests.helpers.killed import POINTS
from tests.helpers.models import FEDERATION
from tests.helpers.runs import StoppedHereError, driver, stop_after, timeless
from tests.helpers.small import CLASSES, FEATURES, clients
from tests.helpers.states import same_bits


@pytest.fixture(scope="module")
def kills(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What `killed.py` found wrong after each kill."""
    command = [sys.executable, "-m", "tests.helpers.killed", str(tmp_path_factory.mktemp("kills"))]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("point", [*POINTS, "mix, then train"])
def test_killed_and_resumed_is_as_if_nothing_had_been(kills: dict[str, str], point: str) -> None:
    assert kills[point] == ""


def test_checkpoints_are_as_frequent_and_as_many_as_asked(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    driver().fit(5, run=folder, checkpoint_every=2, keep=3, progress=False)
    assert [path.name for path in checkpoints.all_checkpoints(folder)] == [f"round-00000{n}" for n in (2, 4, 5)]
    with pytest.raises(StoppedHereError):
        driver().fit(9, run=folder, resume=True, checkpoint_every=4, progress=False, callbacks=[stop_after(7)])
    assert checkpoints.last_round(folder) == 7, "what ends a run early leaves the last completed round"
    same_bits(driver().resume(folder), driver().fit(7, progress=False).state)
    for options in ({"checkpoint_every": 0}, {"keep": 0}):
        with pytest.raises(InputError, match="expected a whole number of at least 1"):
            driver().fit(1, progress=False, **options)


@pytest.mark.parametrize("harm", ["ahead", "behind", "half", "gone", "binary"])
def test_history_is_that_of_the_checkpoint(harm: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    driver().fit(2, run=folder, progress=False)
    history = folder / "history.jsonl"
    lines = history.read_text().splitlines(keepends=True)
    texts = {"ahead": [*lines, lines[1].replace('"round": 2', '"round": 3')], "behind": lines[:1], "half": lines}
    if harm == "gone":
        history.unlink()
    elif harm == "binary":
        history.write_bytes(b"\xff\x00")
    else:
        history.write_text("".join(texts[harm])[: -40 if harm == "half" else None])
    rest = driver().fit(3, run=folder, resume=True, progress=False)
    assert Run.open(folder).history == rest.history
    assert timeless(rest.history) == timeless(driver().fit(3, progress=False).history)


def test_milestone_graphs_survive(tmp_path: Path) -> None:
    """Opened in another process, a run still has the graphs of rounds 1, 2 and 5 for its pictures."""
    fits = []
    for folder, parts in (("whole", [6]), ("parts", [1, 3, 6])):
        for rounds in parts:
            run = Run.open(tmp_path / folder) if rounds != parts[0] else Run.create(tmp_path / folder)
            fits.append(driver().fit(rounds, run=run, resume=rounds != parts[0], progress=False))
        run.draw = list  # type: ignore[method-assign]
        run.finish({"rounds": 6})
    arrays = [np.load(tmp_path / folder / "weights.npz") for folder in ("whole", "parts")]
    assert arrays[1]["rounds"].tolist() == [1, 2, 5, 6]
    assert np.array_equal(arrays[0]["weights"], arrays[1]["weights"])


def other_network(**options: Any) -> EM:
    whose = clients()
    changed = Clients(whose.federation, partial(MLP, FEATURES, CLASSES, (5,)), dtype=torch.float64, batch_size=64)
    return EM(load_model("ring", 4), changed, Schedule(local_steps=2), seed=1)


def other_data() -> EM:
    em = driver()
    em.clients.federation.targets[0] = (em.clients.federation.targets[0] + 1) % CLASSES
    return em


def other_names() -> EM:
    em = driver()
    em.clients.names = ("a", *em.clients.names[1:])
    return em


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: driver(num_clients=5), r"number of clients 4, this EM 5"),
        (lambda: driver("scool_sbm"), r"prior Ring, this EM SBM;"),
        (lambda: driver("local"), r"prior Ring, this EM Dirac;"),
        (lambda: driver(seed=2), r"seed 1, this EM 2"),
        (lambda: driver(schedule=Schedule(local_steps=3)), r"local_steps=2.*local_steps=3"),
        (lambda: driver(dtype=None), r"float64, this EM '1.weight' \(3, 4\) float32"),
        (lambda: driver(batch_size=2), r"batch size 64, this EM 2"),
        (lambda: driver(optimizer=partial(torch.optim.SGD, lr=0.2)), r"optimizer lr=0.1, this EM lr=0.2"),
        (other_network, r"network '1.weight' \(3, 4\).*'1.weight' \(5, 4\)"),
        (other_data, r"data SHA-256"),
        (other_names, r"client client 0, this EM a"),
    ],
)
def test_a_run_of_something_else_is_refused(make: Callable[[], EM], words: str, tmp_path: Path) -> None:
    driver().fit(1, run=tmp_path / "run", progress=False)
    before = contents(tmp_path)
    for resume in (lambda em: em.resume(tmp_path / "run"), lambda em: em.fit(2, run=tmp_path / "run", resume=True)):
        with pytest.raises(InputError, match=words) as refusal:
            resume(make())
        assert "resume with what the run began with" in str(refusal.value)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"params": {"1.weight": torch.zeros(4, 2)}}, r"params '1.weight' \(4, 2\)"),
        ({"prior": {}}, "prior nothing"),
        ({"optimizer": {"x": torch.zeros(3)}}, "optimiser buffer 'x'"),
    ],
)
def test_a_state_that_belies_its_description_is_refused(change: Any, words: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    driver().fit(1, run=folder, progress=False)
    last = checkpoints.newest(folder)
    assert last is not None
    checkpoints.save(folder, last._replace(state=last.state._replace(**change)), keep=1)
    with pytest.raises(InputError, match=words):
        driver().resume(folder)


@pytest.mark.parametrize(
    "part",
    [{"memory": {"resting": Remembered(torch.zeros(3), (0, 1))}}, {"optimizer": {"started": torch.eye(4).bool()}}],
)
def test_a_state_with_which_no_round_can_be_run_is_one_line(part: Any, tmp_path: Path) -> None:
    """Sums that agree cannot vouch for what only a round would find out."""
    folder = tmp_path / "run"
    driver().fit(1, run=folder, progress=False)
    last = checkpoints.newest(folder)
    assert last is not None
    checkpoints.save(folder, last._replace(state=last.state._replace(**part)), keep=1)
    with pytest.raises(InputError, match=r"no round can be run from what .*run' holds of round 1: RuntimeError"):
        driver().fit(2, run=folder, resume=True, progress=False)


def test_the_executor_is_that_of_the_run(tmp_path: Path) -> None:
    """`auto` measures; a run that goes on must not measure anew."""
    for name in ("loop", "stacked"):
        em = driver(executor="auto")
        em.clients.use_executor(name)
        em.fit(1, run=tmp_path / name, progress=False)
        other = driver(executor="auto")
        other.fit(2, run=tmp_path / name, resume=True, progress=False)
        assert other.clients.executor_name == name
    with pytest.warns(UserWarning, match="used the executor 'loop', these clients use 'stacked'"):
        driver(executor="stacked").fit(2, run=tmp_path / "loop", resume=True, progress=False)


def test_a_full_disk_ends_a_run_that_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"

    def full(path: Path, content: bytes) -> None:
        if "round-000002" in str(path):
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write", full)
        with pytest.raises(RunError, match=r"round-000002.*No space left on device.*resume"):
            driver().fit(3, run=folder, progress=False)
    rest = driver().fit(3, run=folder, resume=True, progress=False)
    same_bits(rest.state, driver().fit(3, progress=False).state)


def test_two_processes_do_not_write_one_run(tmp_path: Path) -> None:
    driver().fit(1, run=tmp_path / "run", progress=False)
    with (
        Run.open(tmp_path / "run").locked(),
        pytest.raises(InputError, match="being written by another process"),
    ):
        driver().fit(2, run=tmp_path / "run", resume=True, progress=False)


def test_a_run_that_is_being_written_is_left_alone(own: Path) -> None:
    before = contents(own)
    with Run.open(own / "run").locked():
        assert "being written by another process" in refused("resume", own / "run", "--rounds=3")
        assert "being written by another process" in refused("fit", *TINY, "--overwrite", "--out", own / "run")
    assert contents(own) == before


def test_more_rounds_that_are_refused_are_not_asked_for(own: Path) -> None:
    FEDERATION.select([1, 0, 2, 3]).save_npz(own / "mine.npz")
    before = contents(own)
    assert "this EM" in refused("resume", own / "run", "--rounds=5")
    assert contents(own) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("verb", ["train", "infer", "mix"])
def test_a_signal_ends_the_verb_and_saves_the_round(
    verb: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes in the second round; a round whose last verb is done is kept. Few checkpoints are asked for."""
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    called, finished = [], []
    real = getattr(EM, verb)

    def signalled(*arguments: Any) -> Any:
        called.append(verb)
        if len(called) == 2:
            os.kill(os.getpid(), number)
        result = real(*arguments)
        finished.append(verb)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(EM, verb, signalled)
        with pytest.raises(Interrupted, match=r"round \d is saved in '.*run'"):
            driver().fit(4, run=tmp_path / "run", checkpoint_every=4, progress=False)
    assert finished == called == [verb, verb]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
    assert checkpoints.last_round(tmp_path / "run") == (2 if verb == "mix" else 1)
    rest = driver().fit(4, run=tmp_path / "run", resume=True, progress=False)
    same_bits(rest.state, driver().fit(4, progress=False).state)


def test_a_second_interrupt_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, called = EM.train, []

    def signalled(*arguments: Any) -> Any:
        called.append(1)
        if len(called) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("not at once")
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(EM, "train", signalled)
        with pytest.raises(KeyboardInterrupt) as stop:
            driver().fit(4, run=tmp_path / "run", progress=False)
    assert not isinstance(stop.value, Interrupted)
    assert checkpoints.last_round(tmp_path / "run") == 1
    same_bits(driver().resume(tmp_path / "run"), driver().fit(1, progress=False).state)


def test_without_a_folder_an_interrupt_is_pythons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EM, "look", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT) or pytest.fail("not at once"))
    with pytest.raises(KeyboardInterrupt) as stop:
        driver().fit(1, progress=False)
    assert not isinstance(stop.value, Interrupted)


def test_other_threads_leave_signals_alone(tmp_path: Path) -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(driver().fit(1, run=tmp_path / "run", progress=False)))
    thread.start()
    thread.join()
    assert results[0].state.round == 1


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, int, str]]:
    """Runs of the real command that a signal ended: folder, exit code, standard error."""
    command = [sys.executable, "-m", "scool_ppl", "fit", *TINY, "--rounds=100000", "--out=my run"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    start = partial(subprocess.Popen, command, stderr=subprocess.PIPE, text=True, env=environment)
    folders = {name: tmp_path_factory.mktemp(name) for name in ("SIGINT", "SIGTERM")}
    processes = {name: start(cwd=folder) for name, folder in folders.items()}
    found, give_up = {}, time.monotonic() + 120
    for name, process in processes.items():
        while checkpoints.last_round(folders[name] / "my run") < 3 and time.monotonic() < give_up:
            time.sleep(0.05)
        process.send_signal(signal.Signals[name])
    for name, process in processes.items():  # after both have been told: the second one would run on meanwhile
        errors = process.communicate(timeout=60)[1]
        found[name] = folders[name] / "my run", process.returncode, errors
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_command_with_130_and_the_way_on(
    name: str, interrupted: dict[str, tuple[Path, int, str]], tmp_path: Path
) -> None:
    folder, code, errors = interrupted[name]
    assert code == 130
    reached = checkpoints.last_round(folder)
    assert errors == f"scool: interrupted; round {reached} is saved in 'my run'; go on with `scool resume 'my run'`\n"
    assert "has not ended" in refused("plot", folder)
    assert "scool resume" in refused("fit", "local", *TINY, "--out", folder)
    if name == "SIGINT":
        answer = scool("resume", folder, "--rounds", reached + 1, "--quiet")
        assert (answer.code, answer.err) == (0, "")
        assert scool("fit", *TINY, f"--rounds={reached + 1}", "--out", tmp_path / "whole").code == 0
        assert bits(folder) == bits(tmp_path / "whole"), (
            "begun in another process, and equal to one that was not interrupted"
        )
        assert json.loads((folder / "run.json").read_text())["settings"]["rounds"] == reached + 1


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the command with a model file and data of the user's own."""
    folder = tmp_path_factory.mktemp("ended")
    (folder / "mine.py").write_text(model_path("ring").read_text())
    FEDERATION.save_npz(folder / "mine.npz")
    arguments = (folder / "mine.py", *TINY[1:], f"--federation={folder / 'mine.npz'}", "--out", folder / "run")
    answer = scool("fit", *arguments)
    assert answer.code == 0, answer.err
    return folder


@pytest.fixture
def own(ended: Path, tmp_path: Path) -> Path:
    """A copy of it, with paths of its own."""
    shutil.copytree(ended, tmp_path / "copy")
    text = (tmp_path / "copy" / "run" / "run.json").read_text()
    (tmp_path / "copy" / "run" / "run.json").write_text(text.replace(str(ended), str(tmp_path / "copy")))
    return tmp_path / "copy"


def test_a_run_that_ended_goes_on_with_more_rounds(own: Path, tmp_path: Path) -> None:
    answer = scool("resume", own / "run", "--rounds=3", "--quiet")
    assert answer.code == 0, answer.err
    assert answer.out.endswith(f"pictures in {own / 'run'}\n")
    assert json.loads((own / "run" / "summary.json").read_text())["rounds"] == 3
    assert "3 rounds already, 2 in all" in refused("resume", own / "run", "--rounds=2")
    with np.load(own / "run" / "weights.npz") as arrays:
        assert arrays["rounds"].tolist() == [1, 2, 3]


def test_a_changed_model_file_is_refused_before_it_runs(own: Path) -> None:
    (own / "mine.py").write_text(f"import pathlib; pathlib.Path({str(own / 'canary')!r}).touch()")
    line = refused("resume", own / "run")
    assert "mine.py' is not what it was" in line
    assert "restore it" in line
    assert not (own / "canary").exists()


def test_changed_data_are_refused(own: Path) -> None:
    FEDERATION.select([1, 0, 2, 3]).save_npz(own / "mine.npz")
    assert "this EM" in refused("resume", own / "run")
    (own / "mine.npz").unlink()
    assert "mine.npz" in refused("resume", own / "run")


def request(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        content = json.loads((run / "run.json").read_text())
        replaced = change(content)
        (run / "run.json").write_text(json.dumps(content if replaced is None else replaced))

    return damage


REQUESTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda run: (run / "run.json").unlink(), "not a run's folder"),
    "list": (request(lambda content: [content]), "expected an object"),
    "cut": (lambda run: (run / "run.json").write_text('{"model": "ri'), "cannot read"),
    "deep": (lambda run: (run / "run.json").write_text("[" * 100_000), "cannot read"),
    "of the library": (request(lambda content: {}), "EM.fit(..., resume=True)"),
    "no settings": (request(lambda content: content.pop("settings") and content), "lacks settings"),
    "rounds as text": (request(lambda content: content["settings"].update(rounds="9")), "expected int"),
    "rounds is NaN": (request(lambda content: content["settings"].update(rounds=float("nan"))), "expected int"),
    "no rounds": (request(lambda content: content["settings"].update(rounds=0)), "expected at least 1"),
    "code": (request(lambda content: content["settings"].update(code="import os")), "'code', expected only"),
    "hyperparameter": (request(lambda content: content.update(hyperparameters={"x": 1})), "unknown hyperparameter"),
    "nested": (request(lambda content: content.update(hyperparameters={"x": [1]})), "hyperparameters/x"),
    "model": (request(lambda content: content.update(model="nowhere.py")), "no model file"),
    "model is a number": (request(lambda content: content.update(model=3)), "model is 3, expected str"),
    "federation": (request(lambda content: content.update(federation="moon:digits")), "moon"),
    "checkpoints are a file": (
        lambda run: [(run / "checkpoints").rename(run / "old"), (run / "checkpoints").write_text("x")],
        "cannot read",
    ),
    "all checkpoints cut": (
        lambda run: [os.truncate(path, 9) for path in (run / "checkpoints").rglob("*.safetensors")],
        "no other checkpoint is intact",
    ),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_resume_of_a_damaged_run_is_one_line_and_changes_nothing(case: str, own: Path) -> None:
    damage, words = REQUESTS[case]
    damage(own / "run")
    before = contents(own)
    assert words in refused("resume", own / "run")
    assert contents(own) == before


@pytest.mark.filterwarnings("default")
def test_a_damaged_checkpoint_is_told_in_one_line(own: Path) -> None:
    os.truncate(own / "run" / "checkpoints" / "round-000002" / "data.json", 9)
    answer = scool("resume", own / "run", "--quiet")
    assert answer.code == 0
    assert answer.err.startswith("scool: checkpoint '")
    assert answer.err.endswith("going on from round 1 instead\n")
    assert answer.err.count("\n") == 1
