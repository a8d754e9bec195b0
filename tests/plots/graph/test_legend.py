"""The legend takes the room that it said it would, whatever it has to say."""

from __future__ import annotations

import pytest

from scool_ppl.plots.graph.legend import Entry, draw_legend, legend_height
from scool_ppl.plots.style import new_figure
from tests.helpers.pictures import apart, arranged, on_page


@pytest.mark.parametrize("count", [0, 1, 12, 40])
@pytest.mark.parametrize("width", [4, 11])
def test_it_is_as_high_as_was_said_and_as_wide_as_the_axes(count: int, width: float) -> None:
    entries = [Entry(f"block {number} ({number})", None if number == 3 else "red", "o") for number in range(count)]
    ax = new_figure((width, 5), "none").add_axes((0, 0, 1, 1))
    draw_legend(ax, entries, "what is seen")
    figure = arranged(ax.figure)
    legend = ax.get_legend()
    assert legend is not None
    box = legend.get_window_extent()
    assert on_page(figure, [box])
    assert box.height * 72 / figure.dpi <= legend_height(entries, 72 * width)
    assert box.height * 72 / figure.dpi >= 0.6 * legend_height(entries, 72 * width)
    assert apart([text.get_window_extent() for text in legend.get_texts()])
    assert [text.get_text() for text in legend.get_texts()] == [entry.label for entry in entries]
