"""The figure of a comparison: a panel and a curve for each model, and no text on another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from scool_ppl.plots.comparison import draw_comparison
from tests.helpers.pictures import apart, arranged, even, grouped, on_page


def history(*accuracies: float | None) -> list[dict[str, Any]]:
    return [{"round": round, "accuracy": {"mean": value}} for round, value in enumerate(accuracies, 1)]


def axes_of(figure: Figure) -> Iterator[Any]:
    return (ax for part in figure.subfigs for ax in part.axes)


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_the_figure_has_a_panel_a_model_and_a_curve_a_model(count: int) -> None:
    models = {f"model {i}": (even(i / 10), history(0.1 * i, 0.2 + 0.05 * i)) for i in range(count)}
    figure = draw_comparison(models)
    panels = [ax for ax in axes_of(figure) if ax.images]
    (curves,) = [ax for ax in axes_of(figure) if ax.get_xlabel() == "round"]
    assert [ax.get_title() for ax in panels] == list(models)
    for i, ax in enumerate(panels):
        drawn = np.asarray(ax.images[0].get_array(), dtype=float)
        assert np.nanmax(drawn) == pytest.approx(i / 10)
    assert [line.get_label() for line in curves.lines] == list(models)
    assert [text.get_text() for text in curves.get_legend().get_texts()] == list(models)
    for look in ("get_color", "get_marker"):
        assert len({getattr(line, look)() for line in curves.lines}) == count
    for i, line in enumerate(curves.lines):
        assert np.allclose(line.get_xydata(), [[1, 0.1 * i], [2, 0.2 + 0.05 * i]])


@pytest.mark.parametrize("count", [1, 7])
def test_no_title_legend_or_label_is_cut_off_or_covered(count: int) -> None:
    name = "scool_sbm blocks=8 n_eff=2.0 keep=5"
    figure = arranged(draw_comparison({f"{name} {i}": (even(0.5), history(0.5, 0.6)) for i in range(count)}))
    (curves,) = [ax for ax in axes_of(figure) if ax.get_xlabel() == "round"]
    boxes = [ax.title.get_window_extent() for ax in axes_of(figure) if ax.images]
    boxes += [curves.xaxis.label.get_window_extent(), curves.yaxis.label.get_window_extent()]
    boxes += [curves.get_legend().get_window_extent(), curves.get_window_extent()]
    assert on_page(figure, boxes)
    assert apart(boxes)


def test_all_graphs_have_the_order_of_the_first() -> None:
    first, second = grouped((0, 1, 0, 1)), grouped((0, 0, 1, 1), seed=1)
    figure = draw_comparison({"first": (first, history(0.5)), "second": (second, history(0.5))})
    shown = [np.ma.getdata(ax.images[0].get_array()) for ax in axes_of(figure) if ax.images]
    for graph, drawn in zip((first, second), shown, strict=True):
        assert np.array_equal(drawn, graph.dense().numpy()[np.ix_([0, 2, 1, 3], [0, 2, 1, 3])])


def test_long_labels_stay_above_their_own_panel() -> None:
    figure = draw_comparison({"scool_sbm blocks=8 n_eff=2.0 keep=5": (even(0.5), history(0.5))})
    (title,) = [ax.get_title() for ax in axes_of(figure) if ax.images]
    assert title.split() == ["scool_sbm", "blocks=8", "n_eff=2.0", "keep=5"]
    assert max(map(len, title.splitlines())) <= 22


def test_an_unknown_accuracy_is_a_gap_in_the_curve() -> None:
    figure = draw_comparison({"mine": (even(0.5), history(0.5, None, 0.7))})
    (line,) = [line for ax in axes_of(figure) if ax.get_xlabel() for line in ax.lines]
    assert np.isnan(line.get_ydata()).tolist() == [False, True, False]
