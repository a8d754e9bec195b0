"""Names in the picture of a graph are read: inside their nodes, or where nothing else is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.transforms import Bbox

from scool_ppl.plots.graph.drawing import draw_graph
from scool_ppl.plots.graph.labels import draw_labels
from scool_ppl.plots.style import new_figure
from tests.helpers.pictures import apart, arranged, extents, grouped, on_page


def shrunk(box: Bbox) -> Bbox:
    """Widths of letters are estimated when names are placed."""
    return box.padded(-2)


def test_names_stay_inside_their_nodes() -> None:
    ax = draw_graph(grouped())
    arranged(ax.figure)
    assert len(ax.texts) == grouped().num_clients
    nodes = {(round(box.x0 + box.x1), round(box.y0 + box.y1)): box for box in extents(ax)}
    for text in ax.texts:
        x, y = ax.transData.transform(text.xy)  # type: ignore[attr-defined]
        node, own = nodes[round(2 * x), round(2 * y)], text.get_window_extent()
        assert node.x0 <= own.x0 <= own.x1 <= node.x1


def test_long_names_hit_neither_nodes_nor_names_nor_the_legend() -> None:
    towns = ("University Hospital of North Zurich", "St. Mary's Regional Medical Center", "Clinic A")
    for count, least in ((6, 6), (20, 20), (100, 60)):
        names = tuple(f"{towns[i % 3]} {i}" for i in range(count))
        graph = replace(grouped(tuple(i % 3 for i in range(count))), names=names)
        ax = draw_graph(graph)
        figure = arranged(ax.figure)
        assert least <= len(ax.texts) <= count
        if least == count:
            assert all(text.get_text().endswith(str(i)) for i, text in enumerate(ax.texts))
        written = [text.get_window_extent() for text in ax.texts]
        legend = ax.get_legend()
        assert legend is not None
        assert on_page(figure, written)
        assert apart([*(shrunk(box) for box in [*written, *extents(ax)]), legend.get_window_extent()])


def test_a_name_stands_on_the_side_where_there_is_room() -> None:
    for direction in ([0, -1], [0, 1], [1, 0], [-1, 0]):
        ax = new_figure((4, 4), "none").add_axes((0, 0, 1, 1))
        page = np.array([[-1.0, -1.0], [1.0, 1.0]])
        draw_labels(ax, ["a long name"], np.zeros((1, 2)), 144.0, page, ["red"], np.array([direction]), 24.0)
        (text,) = ax.texts
        assert np.sign(text.xyann).tolist() == direction  # type: ignore[attr-defined]
    draw_labels(ax, ["a long name"], np.zeros((1, 2)), 144.0, page / 9, ["red"], np.zeros((1, 2)), 24.0)
    assert len(ax.texts) == 1, "a page too small for it"
