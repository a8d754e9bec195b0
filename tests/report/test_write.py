"""Which report a path asks for; sizes, and that a report needs nothing else."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from scool_ppl.errors import InputError
from scool_ppl.report import write_report
from tests.helpers.reports import cooperation, folder
from tests.helpers.runs import finished

LOADS = re.compile(
    r"""(?:src|href|action|data|srcset)\s*=\s*["']?\s*(?:https?:)?//|@import|url\(\s*["']?(?!data:|#)""", re.I
)
"""What makes a browser ask for something."""


def outside_scripts(page: str) -> str:
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


@pytest.mark.parametrize("num_clients", [20, 100])
def test_a_report_is_small_and_alone(num_clients: int, tmp_path: Path) -> None:
    report = write_report(folder(tmp_path / "run", cooperation(num_clients)).path)
    assert report == tmp_path / "run" / "report.html"
    page = report.read_text()
    assert report.stat().st_size < 2e6
    assert LOADS.search(outside_scripts(page)) is None
    assert "default-src 'none'" in html.unescape(page)
    rest = outside_scripts(page)
    assert rest.count("<script") == rest.count("</script>") == 1, "the data"


def test_what_loads_would_be_seen() -> None:
    for text in ('<img src="https://x">', "<link href=//x>", "@import 'x'", "background: url(x.png)"):
        assert LOADS.search(text)


def test_equal_runs_have_equal_reports(tmp_path: Path) -> None:
    one, other = (write_report(folder(tmp_path / name / "run", cooperation()).path) for name in "ab")
    assert one.read_bytes() == other.read_bytes()


def test_a_file_of_its_own_choice_and_an_old_one_replaced(tmp_path: Path) -> None:
    (tmp_path / "board.html").write_text("old")
    assert write_report(finished(tmp_path / "run", 1).path, tmp_path / "board.html") == tmp_path / "board.html"
    assert "<!doctype html>" in (tmp_path / "board.html").read_text()
    assert not (tmp_path / "run" / "report.html").exists()


def test_what_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder of a run or a comparison"):
        write_report(tmp_path)
    with pytest.raises(InputError, match=r"table\.csv', expected a file that ends in \.html"):
        write_report(tmp_path, tmp_path / "table.csv")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InputError, match="holds list, expected an object"):
        write_report(tmp_path / "list.json")
    (tmp_path / "half.json").write_text('{"a": ')
    with pytest.raises(InputError, match="cannot read"):
        write_report(tmp_path / "half.json")
    (tmp_path / "other.json").write_text(json.dumps({"cell": {}}))
    with pytest.raises(InputError, match="EXPERIMENT-SCALE"):
        write_report(tmp_path / "other.json")


def test_a_run_that_has_not_ended_says_how_to_go_on(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", 1)
    (run.path / "summary.json").unlink()
    with pytest.raises(InputError, match="scool resume"):
        write_report(run.path)


def test_where_it_cannot_be_written_nothing_is_lost(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", 1)
    with pytest.raises(InputError, match="cannot write"):
        write_report(run.path, tmp_path / "nowhere" / "report.html")
    assert write_report(run.path).is_file()
