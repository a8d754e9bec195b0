"""Curves of a history: each line is a column of its rows, what was not recorded is left out, and texts keep apart."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from scool_ppl.errors import InputError
from scool_ppl.plots.history import draw_history, score_name
from tests.helpers.pictures import apart, arranged, history, on_page


def test_history_lines_are_the_rows() -> None:
    rows = history()
    figure = draw_history(rows, baseline=0.6)
    panels = {ax.get_ylabel(): {str(line.get_label()): line for line in ax.lines} for ax in figure.axes}
    assert list(panels) == ["accuracy", "evidence lower bound", "training loss", "graph against the truth"]
    expected = {
        ("accuracy", "mixed, mean ± std"): [row["accuracy"]["mean"] for row in rows],
        ("accuracy", "mixed, worst 10 %"): [row["accuracy"]["worst10"] for row in rows],
        ("accuracy", "trained, before mixing"): [row["accuracy_trained"]["mean"] for row in rows],
        ("accuracy", "mixed, on own classes"): [row["task_accuracy"]["mean"] for row in rows],
        ("evidence lower bound", "bound"): [row["elbo"] for row in rows],
        ("training loss", "loss"): [row["loss"] for row in rows],
        ("graph against the truth", "L1 distance of rows"): [row["graph"]["l1"] for row in rows],
    }
    for (panel, name), values in expected.items():
        assert np.array_equal(panels[panel][name].get_ydata(), values)
        assert np.array_equal(panels[panel][name].get_xdata(), range(1, 7))
    assert list(panels["accuracy"]["local only"].get_ydata()) == [0.6, 0.6]
    styles = [line.get_linestyle() for name, line in panels["accuracy"].items() if name != "local only"]
    assert len(set(styles)) == 4
    band = figure.axes[0].collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == (pytest.approx(0.55 - 0.04), pytest.approx(0.8 + 0.04))


def test_history_leaves_out_what_was_not_recorded() -> None:
    rows = [row | {"graph": None, "elbo": None, "task_accuracy": row["accuracy"]} for row in history()]
    figure = draw_history(rows)
    assert [ax.get_ylabel() for ax in figure.axes] == ["accuracy", "training loss"]
    assert "mixed, on own classes" not in [line.get_label() for line in figure.axes[0].lines]
    for rows in ([], [{"round": 1}]):
        with pytest.raises(InputError, match="history has no"):
            draw_history(rows)


def test_a_missing_number_is_a_gap() -> None:
    rows = history()
    rows[2]["elbo"] = None
    (line,) = (ax.lines[0] for ax in draw_history(rows).axes if ax.get_ylabel() == "evidence lower bound")
    assert np.isnan(line.get_ydata()).tolist() == [False, False, True, False, False, False]


def test_the_band_of_a_share_stays_within_0_and_1_and_that_of_another_score_does_not() -> None:
    def band(lowest: float) -> tuple[float, float]:
        spread = {"mean": 0.5, "std": 0.7, "worst10": lowest}
        rows = [row | {"accuracy": spread, "score": "R2"} for row in history(2)]
        box = draw_history(rows).axes[0].collections[0].get_paths()[0].get_extents()
        return box.y0, box.y1

    assert band(0.1) == (0, 1)
    assert band(-2.0) == (pytest.approx(-0.2), 1)


def test_the_panel_of_the_score_bears_the_name_that_the_task_gives_it() -> None:
    rows = [row | {"score": "R2"} for row in history()]
    assert score_name(rows) == draw_history(rows).axes[0].get_ylabel() == "R2"
    assert score_name(history()) == "accuracy"


def test_it_is_drawn_on_the_figure_given() -> None:
    figure = Figure()
    assert draw_history(history(), figure) is figure
    assert len(figure.axes) == 4


@pytest.mark.parametrize("rounds", [1, 60])
def test_no_text_of_a_history_is_cut_off_or_overlaps(rounds: int) -> None:
    figure = arranged(draw_history(history(rounds), baseline=0.6))
    boxes = []
    for ax in figure.axes:
        boxes += [ax.xaxis.label.get_window_extent(), ax.yaxis.label.get_window_extent()]
        legend = ax.get_legend()
        boxes += [] if legend is None else [legend.get_window_extent()]
    assert on_page(figure, boxes)
    assert apart(boxes)
