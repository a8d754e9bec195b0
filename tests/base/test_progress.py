"""Bars are written to standard error, say what was done, and are silent when nobody asked for them."""

from __future__ import annotations

import io
import sys
from typing import Any

import IPython
import IPython.display
import pytest

from scool_ppl.base.progress import announced, counted, tracked


def row(loss: float | None, accuracy: float, **more: object) -> dict[str, object]:
    return {"loss": loss, "accuracy": {"mean": accuracy}, "elbo": -12.34, **more}


def test_a_bar_of_rounds_says_what_the_last_row_says(capsys: pytest.CaptureFixture[str]) -> None:
    with tracked(5, done=1) as report:
        report(row(0.5, 0.25))
        report(row(None, 0.75, score="R2"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "round 2/5  loss 0.500  accuracy 0.250  bound -12.3",
        "round 3/5  loss -  R2 0.750  bound -12.3",
    ], "one round was done before, two were reported; no loss is a dash; a score has its own name"


def test_a_bar_that_is_not_wanted_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with tracked(2, enabled=False) as report:
        report({})
    for title, count in ((None, 3), ("cells", 0)):
        with counted(title, count) as advance:
            advance("one")
    announced("one", enabled=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("count", "lines"), [(3, 3), (10, 10), (995, 10)])
def test_a_pipe_gets_a_few_lines_without_codes(count: int, lines: int, capsys: pytest.CaptureFixture[str]) -> None:
    with counted("cells", count) as advance:
        for number in range(count):
            advance(f"cell {number} with a name that is long, longer than any terminal is wide, {'x' * 60}")
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == lines
    assert err.splitlines()[-1].startswith(f"cells {count}/{count}  cell {count - 1} with")
    assert "\x1b" not in err
    assert "\r" not in err


def test_a_terminal_gets_a_line_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    for name, value in {"TERM": "xterm", "COLUMNS": "120"}.items():
        monkeypatch.setenv(name, value)
    with counted("cells", 3) as advance:
        advance("first")
        advance("second")
    text = terminal.getvalue()
    assert "\x1b[2K" in text, "the line is written again"
    assert "2/3" in text
    assert "second" in text


def test_a_notebook_gets_one_output_that_is_replaced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without widgets, of which a missing library would warn."""
    shown: list[str] = []

    class Handle:
        def update(self, thing: Any) -> None:
            shown.append(thing.data)

    def display(thing: Any, display_id: bool) -> Handle:
        assert display_id
        shown.append(thing.data)
        return Handle()

    class Shell:
        kernel = None

    monkeypatch.setattr(IPython, "get_ipython", Shell)
    monkeypatch.setattr(IPython.display, "display", display)
    with counted("<cells>", 3) as advance:
        advance("first")
        advance("a & b")
    assert len(shown) == 3
    assert shown[0].startswith('<progress value="0" max="3">')
    assert shown[-1].startswith('<progress value="2" max="3">')
    assert "&lt;cells&gt; 2/3" in shown[-1]
    assert "a &amp; b" in shown[-1]
    assert capsys.readouterr() == ("", "")


def test_a_line_above_a_bar_is_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    announced("mine [1] | seed 0")
    assert capsys.readouterr() == ("", "mine [1] | seed 0\n")
