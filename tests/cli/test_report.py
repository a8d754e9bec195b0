"""`scool report` as it is called."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.command import refused, scool
from tests.helpers.runs import finished


def test_it_names_the_file_that_it_wrote(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", 1)
    answer = scool("report", run.path)
    assert answer.code == 0, answer.err
    assert answer.out.split() == [str(run.path / "report.html")]
    assert scool("report", run.path, "--out", tmp_path / "board.html").code == 0
    assert "Who learns from whom" in (tmp_path / "board.html").read_text()


def test_what_is_no_run_is_one_line(tmp_path: Path) -> None:
    assert "expected the --out of `scool fit`" in refused("report", tmp_path)
