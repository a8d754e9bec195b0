"""The report of a comparison: its words against its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scool_ppl.errors import InputError
from scool_ppl.report.comparison import comparison_in_words, comparison_page, told


def row(model: str, accuracy: float, gain: float, harmed: float = 0.0) -> dict[str, Any]:
    numbers = {"accuracy": accuracy, "gain over local": gain, "harmed": harmed, "bound": -123.456}
    return {
        "model": model,
        "score": "accuracy",
        **{name: {"mean": value, "std": 0.01} for name, value in numbers.items()},
    }


ROWS = [row("local", 0.5, 0.0), row("fedavg", 0.3, -0.2, 0.75), row("<b>blocks</b>", 0.8, 0.3)]


def test_who_is_best_helps_and_harms() -> None:
    best, better, harmed = comparison_in_words(ROWS, 3, "accuracy")
    assert best == "<b>blocks</b> has the highest mean accuracy, 0.800; local comes next with 0.500."
    assert better == "Better than training alone, in the mean: <b>blocks</b> (+0.300)."
    assert harmed == "Clients that are worse off than alone by more than noise: fedavg 75%."
    assert "one seed says little" in comparison_in_words(ROWS, 1, "accuracy")[0]


def test_the_page_has_every_model_and_seed(tmp_path: Path) -> None:
    runs = [[{"model": one["model"], "seed": seed, "accuracy": one["accuracy"]} for one in ROWS] for seed in (3, 4)]
    page = comparison_page({"table": ROWS, "runs": runs}, tmp_path / "comparison.json")
    assert "&lt;b&gt;blocks&lt;/b&gt;" in page
    assert "0.800 ± 0.010" in page
    assert "-123.5 ± 0.0" in page
    assert 'data-value="4"' in page
    assert "seed by seed" in page


def test_a_cell_is_a_text_and_a_number() -> None:
    assert told({"mean": 0.12345, "std": 0.1}, 1) == ("0.123", 0.12345)
    assert told(None, 2) == ("–", None)


def test_what_is_no_comparison_is_refused(tmp_path: Path) -> None:
    for broken in ({"table": []}, {"table": 3}, {"table": [{"accuracy": None}]}):
        with pytest.raises(InputError, match="is no comparison"):
            comparison_page(broken, tmp_path / "comparison.json")
