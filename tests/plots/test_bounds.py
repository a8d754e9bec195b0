"""The picture of bounds: a dot a model, as far below the best as its bound is."""

from __future__ import annotations

from scool_ppl.plots.bounds import draw_bounds


def test_every_model_is_a_dot_at_its_distance_from_the_best() -> None:
    figure = draw_bounds({"first": -12.0, "best": -10.0, "last": -30.5}, near=3.0)
    (ax,) = figure.axes
    (dots,) = ax.get_lines()[-1:]
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert dict(zip(names, dots.get_xdata(), strict=True)) == {"last": -20.5, "first": -2.0, "best": 0.0}
    assert "-10.0 nats" in ax.get_xlabel()
    figure.canvas.draw()
