"""Panels of lines: means with bands over the seeds, and a legend that covers nothing."""

from __future__ import annotations

import numpy as np
import pytest

from scool_ppl.plots.style import style_of
from scool_ppl.reproduce import panels


def test_legends_cover_nothing():
    figure, axes = panels.panels(["left", "right"])
    for ax in axes:
        series = {f"method number {place}": ([1, 2], [[place, place]]) for place in range(9)}
        panels.draw_series(ax, series, xlabel="round", ylabel="accuracy, %")
    panels.with_legend(figure).draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(series)
    inside = figure.bbox
    for box in (legend.get_window_extent(), *(ax.get_tightbbox() for ax in axes)):
        assert inside.x0 <= box.x0 < box.x1 <= inside.x1
        assert inside.y0 <= box.y0 < box.y1 <= inside.y1
    assert all(legend.get_window_extent().y1 <= ax.get_tightbbox().y0 for ax in axes)


def test_a_line_is_the_mean_over_seeds_and_its_band_one_deviation():
    _, (ax,) = panels.panels(["alone"])
    panels.draw_series(ax, {"a": ([1, 2], [[1.0, 5.0], [3.0, 5.0]]), "b": ([1], [[4.0]])}, xlabel="x", ylabel="y")
    first, second = ax.lines
    assert first.get_xydata().tolist() == [[1, 2], [2, 5]]
    assert second.get_xydata().tolist() == [[1, 4]]
    corners = ax.collections[0].get_paths()[0].vertices
    assert [(corners[corners[:, 0] == x, 1].min(), corners[corners[:, 0] == x, 1].max()) for x in (1, 2)] == [
        (1.0, 3.0),
        (5.0, 5.0),
    ]
    assert [line.get_color() for line in ax.lines] == [style_of(place).colour for place in (0, 1)]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("x", "y", "alone")


def test_a_seed_without_a_number_is_left_out():
    _, (ax,) = panels.panels(["alone"])
    panels.draw_series(ax, {"a": ([1, 2], [[1.0, np.nan], [3.0, 5.0]])}, xlabel="x", ylabel="y")
    assert ax.lines[0].get_ydata().tolist() == [2.0, 5.0]


@pytest.mark.parametrize("count", [1, 3])
def test_one_legend_names_what_several_panels_share_once(count):
    figure, axes = panels.panels([str(place) for place in range(count)])
    height = figure.get_figheight()
    for ax in axes:
        panels.draw_series(ax, {"both": ([1], [[1.0]])}, xlabel="x", ylabel="y")
    panels.with_legend(figure, {"more": axes[0].lines[0]})
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["more", "both"]
    assert figure.get_figheight() > height, "the legend takes no room from the panels"
