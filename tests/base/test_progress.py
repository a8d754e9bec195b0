"""Bars are written to standard error, say what was done, and are silent when nobody asked for them."""

from __future__ import annotations

import pytest

from scool_ppl.base.progress import counted, tracked


def row(loss: float | None, accuracy: float, **more: object) -> dict[str, object]:
    return {"loss": loss, "accuracy": {"mean": accuracy}, "elbo": -12.34, **more}


def test_a_bar_of_rounds_says_what_the_last_row_says(capsys: pytest.CaptureFixture[str]) -> None:
    with tracked(5, done=1) as report:
        report(row(0.5, 0.25))
        report(row(None, 0.75, score="R2"))
    out, err = capsys.readouterr()
    assert out == ""
    assert "3/5" in err, "one round was done before, two were reported"
    assert "loss -  R2 0.750  bound -12.3" in " ".join(err.split("\n")), "no loss is a dash; a score has its own name"


def test_a_bar_that_is_not_wanted_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with tracked(2, enabled=False) as report:
        report({})
    for title, count in ((None, 3), ("cells", 0)):
        with counted(title, count) as advance:
            advance("one")
    assert capsys.readouterr() == ("", "")


def test_a_bar_of_pieces_names_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    with counted("cells", 3) as advance:
        advance("first")
        advance("second")
    out, err = capsys.readouterr()
    assert out == ""
    assert "cells" in err
    assert "2/3" in err
    assert "second" in err
