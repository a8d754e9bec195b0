"""docs/silos.md from its first step to its last, over a real SuperLink and four SuperNodes; then a silo fails, one dies,
and so does the coordinator. And the same app in Flower's simulation, and with large networks. Minutes, so at night:
`make test-nightly`.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scool_ppl import load_federation
from scool_ppl.data.federation import Federation
from scool_ppl.em.em import EM
from scool_ppl.em.state import EMState
from scool_ppl.runs import checkpoints
from scool_ppl.runs.folder import Run
from scool_ppl.workbench import Settings
from scool_ppl.workbench.silos import silo_clients
from tests.helpers.pages import ROOT, steps
from tests.helpers.silos import Place, descendants, kill, place
from tests.helpers.states import same_bits

pytestmark = pytest.mark.nightly

LETTERS = "abcd"
NAMES = tuple(f"hospital-{letter}" for letter in LETTERS)
SETTINGS = Settings(seed=1)


@pytest.fixture(autouse=True)
def installed() -> None:
    pytest.importorskip("flwr", reason="flwr is not installed; `make test-nightly` does it")


def replayed(federation: Federation, model: str, run: Path, settings: Settings = SETTINGS, **choices: Any) -> EMState:
    """The same in one process, in every round without those whom the run was without."""
    em = EM(settings.model(model, federation, **choices), silo_clients(federation, settings), settings.schedule, seed=1)
    state = em.init()
    for row in Run.open(run).history:
        state, _ = em.step(state, list(row["quarantined"]))
    return state


def reached(run: Path) -> EMState:
    last = checkpoints.newest(run)
    assert last is not None
    return last.state


def waited(ready: Any, patience: float = 1500.0) -> None:
    end = time.monotonic() + patience
    while not ready():
        assert time.monotonic() < end
        time.sleep(1)


def rounds(run: Path) -> list[dict[str, Any]]:
    history = run / "history.jsonl"
    return [json.loads(line) for line in history.read_text().splitlines()] if history.is_file() else []


def processes(server: int, word: str) -> Iterator[int]:
    """Those that a server of ours has begun and whose command has this word."""
    for process in descendants(server):
        with suppress(OSError):
            if word in Path(f"/proc/{process}/cmdline").read_bytes().decode():
                yield process


def begun(here: Place, command: str) -> subprocess.Popen[bytes]:
    """`flwr run`, in the background."""
    words = ["bash", "-euc", command]
    with (here.folder / "again.log").open("ab") as log:
        return subprocess.Popen(
            words, cwd=here.folder, env=here.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )


def configured(here: Place, name: str, address: str, *more: str) -> None:
    """Flower's own folder beside everything else, and in it the SuperLink that this is."""
    here.environment |= {"FLWR_HOME": str(here.folder / "flwr"), "FLWR_TELEMETRY_ENABLED": "0"}
    (here.folder / "flwr").mkdir()
    told = [f"[superlink.{name}]", f'address = "{address}"', "insecure = true", *more, ""]
    (here.folder / "flwr" / "config.toml").write_text("\n".join(told))


def test_the_page_and_what_it_says_of_failures(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        printed = [here.run(step) for step in steps(ROOT / "docs" / "silos.md")]
        run, command = tmp_path / "runs" / "hospitals", ""
        assert all((run / name).is_file() for name in ("graph.png", "report.html"))
        for letter in LETTERS:
            row = json.loads((tmp_path / f"hospital-{letter}" / "kept" / "learns_from.json").read_text())
            other = dict(zip(LETTERS, "badc", strict=True))[letter]
            assert max(row, key=row.__getitem__) == f"hospital-{other}"
        assert any("accuracy 0." in text for text in printed)

        whole = load_federation("permuted:digits:clients=4,groups=2,train=100,order=listed", seed=1)
        federation = replace(whole, names=NAMES)
        same_bits(reached(run), replayed(federation, "scool_sbm", run, blocks=2))

        for step in steps(ROOT / "docs" / "silos.md"):
            command = next((line for line in step.commands() if line.startswith("flwr run")), command)
        more = command.replace("rounds=2", "rounds=5 timeout=240.0")
        assert more != command
        going = begun(here, more)
        waited(lambda: len(rounds(run)) >= 3)
        (tmp_path / "hospital-c" / "mine.npz").rename(tmp_path / "hospital-c" / "hidden.npz")
        for process in [here.servers[4].pid, *descendants(here.servers[4].pid)]:
            kill(process)
        waited(lambda: (run / "checkpoints" / "round-000004").is_dir())
        for driver in processes(here.servers[0].pid, "flwr-serverapp"):
            kill(driver)
        going.wait(600)
        waited(lambda: not list(processes(here.servers[0].pid, "flwr-serverapp")))
        assert len(rounds(run)) == 4, "the coordinator died in the middle"

        (tmp_path / "hospital-c" / "hidden.npz").rename(tmp_path / "hospital-c" / "mine.npz")
        (node,) = (step for step in steps(ROOT / "docs" / "silos.md") if "9504" in step.text)
        text = node.text.replace("\\\n", " ").splitlines()[-1]
        here.serve(text)
        here.run(node._replace(text=more))
        told = rounds(run)
        assert [row["round"] for row in told] == [1, 2, 3, 4, 5]
        assert set(told[3]["quarantined"]) == {"hospital-c", "hospital-d"}
        assert "no file" in told[3]["quarantined"]["hospital-c"]
        assert told[4]["quarantined"] == {}
        same_bits(reached(run), replayed(federation, "scool_sbm", run, blocks=2))
        assert torch.tensor([row["accuracy"]["mean"] for row in told]).min() > 0.8


def test_the_same_app_in_a_simulation(tmp_path: Path) -> None:
    """Eight clients of a federation, two at each of four nodes, come to what one process comes to."""
    pytest.importorskip("ray", reason="ray is not installed; `make test-nightly` does it")
    spec = "permuted:digits:clients=8,groups=2,train=40"
    with place(tmp_path) as here:
        configured(here, "made-up", "127.0.0.1:9543", "options.num-supernodes = 4")
        here.serve("flower-superlink --insecure --simulation --port 9543 --disable-runtime-dependency-installation")
        config = f'model="scool_sbm" clients=8 rounds=4 seed=1 federation="{spec}" out="{tmp_path}/run"'
        (block, *_) = steps(ROOT / "docs" / "silos.md")
        here.run(block._replace(text=f"scool flower app app\nflwr run app made-up --stream --run-config '{config}'"))
        run = Run.open(tmp_path / "run")
        run.check_finished()
        same_bits(reached(run.path), replayed(load_federation(spec, seed=1), "scool_sbm", run.path))
        assert run.history[-1]["graph"]["ari"] == 1.0


def test_networks_of_100_megabytes_travel(tmp_path: Path) -> None:
    """Out to a silo, and back, trained, to the bit; and once more to be kept."""
    random = np.random.default_rng(1)
    inputs, split = random.normal(size=(24, 1, 8, 8)).astype("float32"), np.repeat([0, 1, 2], 8)
    np.savez(tmp_path / "mine.npz", inputs=inputs, targets=np.arange(24) % 3, split=split)
    config = (
        'model="local" network="cnn" width=12.0 task="classification:num_classes=3" clients=1 rounds=1 warmup-epochs=1 '
        f'seed=1 timeout=1500.0 out="{tmp_path}/run"'
    )
    with place(tmp_path) as here:
        configured(here, "large", "127.0.0.1:9643")
        here.serve("flower-superlink --insecure --host 127.0.0.1 --port 9643 --disable-runtime-dependency-installation")
        node = f'data="{tmp_path}/mine.npz" keep="{tmp_path}/kept"'
        here.serve(f"flower-supernode --insecure --superlink 127.0.0.1:9643 --port 9644 --node-config '{node}'")
        (block, *_) = steps(ROOT / "docs" / "silos.md")
        here.run(block._replace(text=f"scool flower app app\nflwr run app large --stream --run-config '{config}'"))
        run = Run.open(tmp_path / "run")
        run.check_finished()
        settings = replace(SETTINGS, network="cnn", width=12.0, warmup_epochs=1)
        federation = Federation.from_npz(
            tmp_path / "mine.npz", name="mine", task="classification:num_classes=3", seed=settings.seed
        )
        clients = silo_clients(federation, settings)
        assert clients.bytes_per_model > 1e8
        same_bits(reached(run.path), replayed(federation, "local", run.path, settings))
        assert Run.open(tmp_path / "kept").predict("mine", inputs[:2]).shape == (2,)
