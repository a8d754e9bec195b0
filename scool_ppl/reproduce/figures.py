"""Figures of experiments, as in the papers, from the result store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from scool_ppl.base.codec import Row
from scool_ppl.errors import RunError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.plots.matrix import draw_weights, draw_weights_over_rounds
from scool_ppl.plots.style import new_figure, style_of
from scool_ppl.reproduce.experiment import Column, Method
from scool_ppl.reproduce.measures import MEASURES
from scool_ppl.reproduce.panels import draw_series, finished, panels, with_legend
from scool_ppl.reproduce.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_TRUTH: dict[str, Any] = {"color": "#7f7f7f", "linestyle": "-", "linewidth": 1.0, "zorder": 1}


def curves(results: Results, name: str, ylabel: str) -> Figure:
    """A curve of the history ("l1", "accuracy", ...) over the rounds, a panel a column."""
    experiment = results.experiment
    figure, axes = panels([column.label for column in experiment.columns])
    for ax, column in zip(axes, experiment.columns, strict=True):
        series = {}
        for method in experiment.methods:
            histories = [record["history"] for record in results.records(column, method)]
            if None not in histories[0][name]:
                series[method.label] = (histories[0]["round"], [history[name] for history in histories])
        draw_series(ax, series, xlabel="round", ylabel=ylabel)
    return with_legend(figure)


def against(results: Results, place: Callable[[Method], tuple[str, float]], xlabel: str, ylabel: str) -> Figure:
    """Accuracy in percent against a number that methods of one series differ in; `place` gives series and number."""
    experiment = results.experiment
    figure, axes = panels([column.label for column in experiment.columns])
    for ax, column in zip(axes, experiment.columns, strict=True):
        points: dict[str, dict[float, list[float]]] = {}
        for method in experiment.methods:
            label, x = place(method)
            values = results.values(column, method, "accuracy") or []
            points.setdefault(label, {})[x] = [100 * value for value in values]
        series = {
            label: (sorted(at), list(zip(*(at[x] for x in sorted(at)), strict=True))) for label, at in points.items()
        }
        draw_series(ax, series, xlabel=xlabel, ylabel=ylabel)
        ax.set_xticks(sorted({x for at in points.values() for x in at}))
    return with_legend(figure)


def over_columns(
    results: Results,
    measures: Sequence[str],
    *,
    columns: Sequence[Column] | None = None,
    place: Callable[[Results, Column, Method], float | None] | None = None,
    xlabel: str = "",
) -> Figure:
    """Measures over the columns in their order, as where these are more and more of something: a panel a measure, a line
    a method, through the columns in which it was run. columns: these only. place: where a cell stands on the x axis
    instead, None for nowhere.
    """
    columns = results.experiment.columns if columns is None else columns
    figure, axes = panels([MEASURES[measure].title for measure in measures], (4.4, 3.6))
    for ax, measure in zip(axes, measures, strict=True):
        series = {}
        for method in results.experiment.methods:
            found = []
            for number, column in enumerate(columns):
                at = number if place is None else place(results, column, method)
                values = None if at is None else results.values(column, method, measure)
                if at is not None and values:
                    found.append((at, [value * MEASURES[measure].scale for value in values]))
            if found:
                places, by_column = zip(*sorted(found), strict=True)
                series[method.label] = (places, list(zip(*by_column, strict=True)))
        draw_series(ax, series, xlabel=xlabel, ylabel=MEASURES[measure].title)
        if place is None:
            labels = [column.label.replace(", ", ",\n") for column in columns]
            ax.set_xticks(range(len(labels)), labels, rotation=40, ha="right", fontsize=7)
    return with_legend(figure)


def weights_over_rounds(results: Results) -> dict[str, Figure]:
    """The graphs of the kept rounds beside the truth: a figure for each column and method, named after them."""
    figures: dict[str, Any] = {}
    for column in results.experiment.columns:
        for method in results.experiment.methods:
            kept = kept_graphs(results, column, method)
            truth = None if kept["truth"] is None else torch.tensor(kept["truth"], dtype=torch.float64)
            figure = draw_weights_over_rounds(graphs(kept), truth=truth)
            figure.suptitle(f"{method.label}; {column.label}", fontsize=10)
            figures[_slug(f"{method.label} {column.label}")] = figure
    return figures


def weights_of_client(results: Results, client: int = 0) -> Figure:
    """Whom one client learns from over the kept rounds (FedeRiCo, Fig. 3): a line a sender, a panel a method."""
    column = results.experiment.columns[0]
    methods = results.experiment.methods
    figure, axes = panels([method.label for method in methods])
    for ax, method in zip(axes, methods, strict=True):
        kept = kept_graphs(results, column, method)
        found = graphs(kept)
        groups = kept["groups"] or [0] * found[next(iter(found))].num_clients
        rows = torch.stack([graph.dense()[client] for graph in found.values()])
        shown = set()
        for sender in sorted(range(len(groups)), key=lambda j: (groups[j] == groups[client], j == client)):
            kind = (
                "itself" if sender == client else "same group" if groups[sender] == groups[client] else "other groups"
            )
            style = style_of(("same group", "other groups", "itself").index(kind))
            label = None if kind in shown else kind
            shown.add(kind)
            ax.plot(list(found), rows[:, sender], **style.options, markersize=3, label=label)
        finished(ax, "round", f"weights of client {client}")
    return with_legend(figure)


def weight_by_shared_classes(results: Results) -> Figure:
    """Weights of the last kept round against the number of classes that two clients share (L2C, Fig. 7)."""
    experiment = results.experiment
    figure, axes = panels([column.label for column in experiment.columns])
    for ax, column in zip(axes, experiment.columns, strict=True):
        for place, method in enumerate(experiment.methods):
            kept = kept_graphs(results, column, method)
            classes = [set(own) for own in kept["classes"]]
            shared = torch.tensor([[len(one & other) for other in classes] for one in classes])
            weights = list(graphs(kept).values())[-1].dense()
            others = ~torch.eye(len(classes), dtype=torch.bool)
            numbers = shared[others].unique()
            chosen = [weights[others & (shared == number)] for number in numbers]
            mean = torch.stack([some.mean() for some in chosen])
            spread = torch.stack([some.std(unbiased=False) for some in chosen])
            ax.errorbar(numbers, mean, spread, label=method.label, capsize=3, markersize=5, **style_of(place).options)
        finished(ax, "classes that two clients share", "cooperation weight")
    return with_legend(figure)


def fitted_curves(results: Results, truth: Callable[[Tensor], Tensor] | None = None) -> Figure:
    """Training data, and what the clients of each method predict (FedeRiCo, Fig. 1 left); a panel a method.

    truth: the curve without noise, y of x, drawn behind them.
    """
    from matplotlib.lines import Line2D

    column = results.experiment.columns[0]
    methods = results.experiment.methods
    figure, axes = panels([method.label for method in methods], (2.7, 3.2))
    for ax, method in zip(axes, methods, strict=True):
        kept = results.records(column, method)[0].get("predictions")
        if kept is None:
            raise RunError(f"'{method.label}' kept no predictions; ask for them in Experiment(predictions=True)")
        for client, (inputs, outputs) in enumerate(zip(kept["inputs"], kept["outputs"], strict=True)):
            style = style_of(client % 2)
            data: dict[str, Any] = {**style.options, "linestyle": "none", "markersize": 3, "alpha": 0.6}
            ax.plot(np.ravel(kept["train_inputs"][client]), kept["train_targets"][client], **data)
            order = np.argsort(np.ravel(inputs))
            fit: dict[str, Any] = {**style.options, "marker": "none", "linewidth": 2.5}
            ax.plot(np.ravel(inputs)[order], np.ravel(outputs)[order], **fit)
        if truth is not None:
            seen = np.concatenate(kept["inputs"])
            x = torch.linspace(float(seen.min()), float(seen.max()), 200)
            ax.plot(x, truth(x), **_TRUTH)
        finished(ax, "x", "y")
        ax.sharey(axes[0])
        ax.label_outer()
    labels = ("data and fit of even clients", "of odd clients")
    drawn = {label: Line2D([], [], **style_of(place).options, markersize=4) for place, label in enumerate(labels)}
    if truth is not None:
        drawn["without noise"] = Line2D([], [], **_TRUTH)
    return with_legend(figure, drawn)


def client_order(results: Results, label: str) -> Figure:
    """The last kept graph of a method with the clients in their own order (FedeRiCo, Fig. 1 right)."""
    column = results.experiment.columns[0]
    method = next(row for row in results.experiment.methods if row.label == label)
    graph = list(graphs(kept_graphs(results, column, method)).values())[-1]
    figure = new_figure((4.6, 3.9))
    draw_weights(graph, figure.subplots(), order=range(graph.num_clients), title=f"{label}, {column.label}")
    return figure


def kept_graphs(results: Results, column: Column, method: Method) -> Row:
    """The graphs that the cell of the first seed kept."""
    kept: Row | None = results.records(column, method)[0]["graphs"]
    if kept is None:
        raise RunError(f"'{method.label}' kept no graphs; name the rounds in Experiment(graphs=...)")
    return kept


def graphs(kept: Row) -> dict[int, CooperationGraph]:
    """The kept graphs by round."""
    found = {}
    for round, rows in kept["weights"].items():
        weights = torch.tensor(rows, dtype=torch.float64)
        found[int(round)] = CooperationGraph(
            weights=weights,
            names=tuple(f"client {client}" for client in range(len(weights))),
            peers=Peers.everybody(len(weights), includes_self=bool(weights.diagonal().any())),
            kind=kept["kind"],
            groups=None if kept["groups"] is None else tuple(kept["groups"]),
        )
    return found


def _slug(text: str) -> str:
    """A text as part of a file's name."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in text.lower()).split())
