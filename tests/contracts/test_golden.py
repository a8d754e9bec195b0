"""The golden runs come out bit for bit as they were, and checkpoints that an earlier version wrote go on.

They pin what the library gave when they were written; that those numbers are right is what all other tests are for.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from scool_ppl import load_federation
from scool_ppl.cli import main
from tests.helpers import golden

KNOWN = json.loads(golden.RUNS.read_text())
HERE = golden.machine()
same_machine = pytest.mark.skipif(
    KNOWN["machine"] != HERE, reason=f"other arithmetic than that of the golden runs: {HERE}, {KNOWN['machine']}"
)


@pytest.mark.parametrize("model", golden.MODELS)
def test_numbers_are_those_of_the_golden_runs(model: str) -> None:
    """In float64, as an earlier version gave them: what is computed in another order differs by rounding alone, which three
    short rounds do not blow up.
    """
    found, expected = golden.golden(model, dtype=torch.float64)["rounds"], KNOWN["double"][model]
    near = 1e-12 if KNOWN["machine"] == HERE else 1e-6
    assert golden.numbers(found) == pytest.approx(golden.numbers(expected), rel=near, abs=near)


@same_machine
@pytest.mark.parametrize("model", golden.MODELS)
def test_bits_are_those_of_the_golden_runs(model: str) -> None:
    found, expected = golden.golden(model), KNOWN["models"][model]
    assert found["rounds"] == expected["rounds"]
    assert found["bits"] == expected["bits"]


@pytest.mark.parametrize("model", golden.KEPT)
def test_an_old_checkpoint_goes_on(model: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(golden.FOLDER / model, tmp_path / "run"))
    em = golden.driver(model, load_federation(golden.SMALL, seed=3), network=golden.small_network, executor="stacked")
    fit = em.fit(4, run=folder, resume=True, progress=False)
    expected = KNOWN["resumed"][model]
    if KNOWN["resumed"]["machine"] == HERE:
        assert golden.digest(fit.state.params) == expected["networks"]
        assert golden.digest(fit.state.q) == expected["q"]
    found = golden.numbers(golden.history(fit.history))
    assert found == pytest.approx(golden.numbers(expected["history"]), rel=1e-3, abs=1e-3)


def test_an_old_run_of_the_command_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = Path(shutil.copytree(golden.FOLDER / "command", tmp_path / "run"))
    with pytest.raises(SystemExit) as done:
        main(["resume", str(folder), "--rounds", "4", "--quiet"])
    assert done.value.code == 0, capfd.readouterr().err
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    found, expected = golden.history(rows), KNOWN["resumed"]["command"]["history"]
    assert golden.numbers(found) == pytest.approx(golden.numbers(expected), rel=1e-3, abs=1e-3)
    assert found == expected or KNOWN["resumed"]["machine"] != HERE
