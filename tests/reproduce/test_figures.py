"""Figures of experiments: the lines, points and matrices drawn are the stored numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scool_ppl.errors import RunError
from scool_ppl.reproduce import figures
from scool_ppl.reproduce.experiment import Method
from scool_ppl.runs.store import Store
from tests.helpers.experiments import COLUMN, LOCAL, filled, record, tiny

OURS = Method("Ours, 5 %", "ring")
WEIGHTS = {
    "1": [[0.0, 0.2, 0.4], [0.6, 0.0, 0.8], [1.0, 0.3, 0.0]],
    "2": [[0.0, 0.9, 0.1], [0.7, 0.0, 0.2], [0.3, 0.5, 0.0]],
}
GRAPHS = {
    "kind": "edges",
    "weights": WEIGHTS,
    "groups": [0, 0, 1],
    "truth": [[0, 1, 0], [1, 0, 0], [0, 0, 0]],
    "classes": [[0, 1], [0, 1], [1, 2]],
}


def made(tmp_path, *records, **changes):
    return filled(Store(tmp_path / "s.json"), tiny(**changes), *records)


def with_graphs(tmp_path, **changes):
    """One method that kept the graphs of two rounds."""
    cell = record((0.5,) * 3, (0.5,) * 3, graphs={**GRAPHS, **changes})
    return made(tmp_path, cell, methods=(OURS,), seeds=(0,), graphs=(1, 2))


def labels_of(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_a_curve_is_the_mean_of_the_histories_and_methods_without_one_are_left_out(tmp_path):
    cells = [
        record((0.5,), (0.5,), history={"round": [1, 2], "l1": values})
        for seed in ([0.2, 0.4], [0.4, 0.8])
        for values in ([None, None], seed)
    ]
    figure = figures.curves(made(tmp_path, *cells, methods=(LOCAL, OURS)), "l1", "distance")
    (ax,) = figure.axes
    assert [line.get_label() for line in ax.lines] == labels_of(figure) == ["Ours, 5 %"]
    assert ax.lines[0].get_xdata().tolist() == [1, 2]
    assert ax.lines[0].get_ydata() == pytest.approx([0.3, 0.6])
    assert (ax.get_title(), ax.get_ylabel()) == ("tiny", "distance")


def test_measures_over_columns_are_lines_through_the_columns_of_a_method(tmp_path):
    columns = tuple(COLUMN._replace(label=label) for label in ("none", "some", "much, more"))
    methods = (Method("Ours", "ring"), LOCAL._replace(only=("none",)))
    numbers = ((0.9, 0.95), (0.5, None), (0.7, 0.8), (0.4, 0.6))
    cells = [record((value,), (value,), graph={"auc": auc, "l1": None, "ari": None}) for value, auc in numbers]
    results = made(tmp_path, *cells, columns=columns, methods=methods, seeds=(0,))
    accuracy, edges = figures.over_columns(results, ("accuracy", "auc")).axes
    ours, local = accuracy.lines
    assert ours.get_xdata().tolist() == [0, 1, 2]
    assert ours.get_ydata() == pytest.approx([90.0, 70.0, 40.0])
    assert (local.get_xdata().tolist(), local.get_ydata()) == ([0], pytest.approx([50.0]))
    (line,) = edges.lines
    assert line.get_ydata() == pytest.approx([0.95, 0.8, 0.6])
    assert [text.get_text() for text in edges.get_xticklabels()] == ["none", "some", "much,\nmore"]
    assert edges.get_title() == "edges AUC"


def test_columns_stand_where_they_are_placed_or_are_left_out(tmp_path):
    """The last stands before the first, the middle one nowhere; two of them only, where two are asked for."""
    labels = ("none", "some", "much")
    columns = tuple(COLUMN._replace(label=label) for label in labels)
    cells = [record((value,), (value,)) for value in (0.9, 0.5, 0.7)]
    results = made(tmp_path, *cells, columns=columns, methods=(OURS,), seeds=(0,))
    places = {"none": 8.0, "some": None, "much": 6.5}
    placed = figures.over_columns(results, ("accuracy",), place=lambda _, column, __: places[column.label], xlabel="e")
    (ax,) = placed.axes
    assert ax.lines[0].get_xydata() == pytest.approx(np.array([[6.5, 70.0], [8.0, 90.0]]))
    assert ax.get_xlabel() == "e"
    (ax,) = figures.over_columns(results, ("accuracy",), columns=columns[:2]).axes
    assert [text.get_text() for text in ax.get_xticklabels()] == ["none", "some"]
    assert ax.lines[0].get_ydata() == pytest.approx([90.0, 50.0])


def test_methods_of_one_series_are_points_of_one_line_in_percent(tmp_path):
    methods = (Method("Ours, 8", "ring"), Method("Ours, 2", "fedavg"), Method("Theirs, 2", "local"))
    cells = [record((value,), (value,)) for value in (0.9, 0.5, 0.25)]
    results = made(tmp_path, *cells, methods=methods, seeds=(0,))

    def place(method):
        label, number = method.label.split(", ")
        return label, float(number)

    (ax,) = figures.against(results, place, "budget", "accuracy, %").axes
    drawn = {line.get_label(): line.get_xydata().tolist() for line in ax.lines}
    assert drawn == {"Ours": [[2, 50], [8, 90]], "Theirs": [[2, 25]]}
    assert ax.get_xticks().tolist() == [2, 8]


def test_weights_over_rounds_are_a_figure_a_method_with_the_truth_last(tmp_path):
    ((name, figure),) = figures.weights_over_rounds(with_graphs(tmp_path)).items()
    assert name == "ours-5-tiny"
    panels = [ax for ax in figure.axes if ax.images]
    assert [ax.get_title() for ax in panels] == ["round 1", "round 2", "truth"]
    expected = [*WEIGHTS.values(), GRAPHS["truth"]]
    for ax, weights in zip(panels, expected, strict=True):
        off = ~np.eye(3, dtype=bool)
        assert np.allclose(np.ma.getdata(ax.images[0].get_array())[off], np.array(weights)[off])


def test_weights_of_a_client_are_a_line_a_sender_in_the_colour_of_its_kind(tmp_path):
    figure = figures.weights_of_client(with_graphs(tmp_path), client=1)
    (ax,) = figure.axes
    assert {tuple(line.get_ydata()) for line in ax.lines} == {(0.6, 0.7), (0.0, 0.0), (0.8, 0.2)}
    kinds = {line.get_label(): tuple(line.get_ydata()) for line in ax.lines}
    assert kinds == {"same group": (0.6, 0.7), "other groups": (0.8, 0.2), "itself": (0.0, 0.0)}
    assert sorted(labels_of(figure)) == sorted(kinds)
    assert len({line.get_color() for line in ax.lines}) == 3
    assert ax.get_ylabel() == "weights of client 1"


def test_weights_stand_over_the_number_of_classes_that_two_clients_share(tmp_path):
    (ax,) = figures.weight_by_shared_classes(with_graphs(tmp_path)).axes
    (bars,) = ax.containers
    two, one = [0.9, 0.7], [0.1, 0.2, 0.3, 0.5]
    assert bars.lines[0].get_xdata().tolist() == [1, 2]
    assert bars.lines[0].get_ydata() == pytest.approx([np.mean(one), np.mean(two)])
    ends = [(segment[0, 1], segment[1, 1]) for segment in bars.lines[2][0].get_segments()]
    assert ends == [pytest.approx((np.mean(own) - np.std(own), np.mean(own) + np.std(own))) for own in (one, two)]


def test_fits_are_drawn_in_the_order_of_their_inputs_with_their_data(tmp_path):
    kept = {
        "inputs": [[[2.0], [1.0]], [[4.0], [3.0]]],
        "outputs": [[[20.0], [10.0]], [[40.0], [30.0]]],
        "train_inputs": [[[1.5]], [[3.5]]],
        "train_targets": [[[15.0]], [[35.0]]],
    }
    results = made(tmp_path, record((0.5,), (0.5,), predictions=kept), methods=(OURS,), seeds=(0,), predictions=True)
    figure = figures.fitted_curves(results, truth=lambda x: 10 * x)
    (ax,) = figure.axes
    points, first, more, second, truth = (line.get_xydata().tolist() for line in ax.lines)
    assert (points, first) == ([[1.5, 15]], [[1, 10], [2, 20]])
    assert (more, second) == ([[3.5, 35]], [[3, 30], [4, 40]])
    assert (truth[0], truth[-1]) == ([1, 10], [4, 40])
    data, fit = ax.lines[:2]
    assert (data.get_linestyle(), fit.get_marker()) == ("None", "none"), "data are points, fits are lines"
    assert ax.lines[0].get_color() == ax.lines[1].get_color() != ax.lines[3].get_color()
    assert labels_of(figure) == ["data and fit of even clients", "of odd clients", "without noise"]


def test_the_graph_of_a_method_with_clients_in_their_own_order(tmp_path):
    figure = figures.client_order(with_graphs(tmp_path, groups=[1, 0, 1]), "Ours, 5 %")
    drawn = np.ma.getdata(figure.axes[0].images[0].get_array())
    assert np.allclose(drawn, np.array(WEIGHTS["2"]))
    assert figure.axes[0].get_title() == "Ours, 5 %, tiny"


def test_kept_graphs_come_back_with_kind_groups_and_own_weights():
    kept = {**GRAPHS, "kind": "rows", "weights": {"7": [[0.5, 0.5], [0.0, 1.0]]}, "groups": [0, 1]}
    ((number, graph),) = figures.graphs(kept).items()
    assert (number, graph.kind, graph.groups) == (7, "rows", (0, 1))
    assert torch.equal(graph.dense(), torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64))


def test_what_was_not_kept_is_said(tmp_path):
    results = made(tmp_path, record((0.5,), (0.5,), graphs=None), methods=(OURS,), seeds=(0,))
    with pytest.raises(RunError, match="kept no graphs; name the rounds"):
        figures.weights_over_rounds(results)
    with pytest.raises(RunError, match="kept no predictions; ask for them"):
        figures.fitted_curves(results)
