"""The CSV log: a row a round as the history has it, once each, and settings beside it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from scool_ppl.errors import InputError
from scool_ppl.runs.loggers import CSV
from scool_ppl.runs.loggers.base import scalars
from tests.helpers.command import fit, rows, scool
from tests.helpers.logged import STOPS, went_on
from tests.helpers.runs import driver


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.mark.parametrize("stop", STOPS)
def test_a_run_that_goes_on_is_logged_once(stop: str, tmp_path: Path) -> None:
    history = went_on(lambda: CSV(tmp_path / "log.csv"), tmp_path / "run", stop)
    found = read(tmp_path / "log.csv")
    assert [row["round"] for row in found] == ["1", "2", "3", "4", "5"]
    for row, expected in zip(found, history, strict=True):
        numbers = {name: float(value) for name, value in row.items() if value != "" and "seconds" not in name}
        assert numbers == {"round": expected["round"]} | {
            name: value for name, value in scalars(expected).items() if "seconds" not in name
        }


def test_the_settings_are_beside_it(tmp_path: Path) -> None:
    driver().fit(1, progress=False, callbacks=[CSV(tmp_path / "log.csv", {"note": {"of": "mine"}})])
    told = json.loads((tmp_path / "log.settings.json").read_text())
    assert told["note/of"] == "mine"
    assert told["prior"].startswith("Ring")
    assert "local_steps=2" in told["schedule"]


def test_half_a_row_is_dropped_and_another_runs_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    driver().fit(2, run=tmp_path / "run", progress=False, callbacks=[CSV(path)])
    whole = path.read_text()
    with pytest.raises(InputError, match="has a log of 2 rounds already"):
        driver().fit(1, progress=False, callbacks=[CSV(path)])
    assert path.read_text() == whole
    path.write_text(whole[:-10])
    driver().fit(2, run=tmp_path / "run", resume=True, progress=False, callbacks=[CSV(path)])
    assert path.read_text() == whole, "the history has the round"


def test_the_command_logs_and_goes_on_logging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.runs.folder.Run.draw", lambda run: [])
    run = tmp_path / "run"
    fit(run, "local", "--log=csv", "--log=csv")
    before = read(run / "log.csv")
    assert scool("resume", run, "--rounds=3", "--quiet").code == 0
    found = read(run / "log.csv")
    assert found[:2] == before
    assert [float(row["loss"]) for row in found] == [row["loss"] for row in rows(run)]
    told = json.loads((run / "log.settings.json").read_text())
    assert told["settings/rounds"] == "3"
