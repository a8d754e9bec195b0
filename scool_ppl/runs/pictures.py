"""The pictures of a run, from the files of its folder."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from scool_ppl.base.codec import Row
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.runs.deployed import FILE
from scool_ppl.runs.folder import SUMMARY, Run


def draw(run: Run, threshold: float | None = None) -> list[Path]:
    """graph.png, weights.png and history.png of a run that has ended, and deployed.png where clients had a choice.

    The edges of graph.png are those that are believed, or above the threshold: 0 is all.
    """
    from scool_ppl.plots.deployment import draw_deployment
    from scool_ppl.plots.graph.drawing import draw_graph
    from scool_ppl.plots.history import draw_history
    from scool_ppl.plots.matrix import draw_weights_over_rounds
    from scool_ppl.plots.style import save_figure

    graphs, truth = run.weights()
    final, summary = run.graph, run.read_json(SUMMARY)
    series = {round: _of_round(final, *Peers.read(kept)) for round, kept in graphs.items()}
    pictures = {
        "graph.png": draw_graph(final, threshold=threshold),
        "weights.png": draw_weights_over_rounds(series, truth=truth),
        "history.png": draw_history(run.history, baseline=baseline_of(summary, run.path / SUMMARY)),
    }
    if (run.path / FILE).exists() and run.deployment.chosen:
        deployment = run.deployment
        pictures["deployed.png"] = draw_deployment(deployment.weights, deployment.candidates, final.names, final.groups)
    for name, picture in pictures.items():
        save_figure(picture, run.path / name)
    return [run.path / name for name in pictures]


def _of_round(final: CooperationGraph, peers: Peers, weights: Tensor) -> CooperationGraph:
    """An earlier graph of the clients of the final one, and in its blocks."""
    return CooperationGraph(
        weights=weights,
        names=final.names,
        peers=peers,
        kind=final.kind,
        memberships=final.memberships,
        blocks_are_final=True,
        groups=final.groups,
    )


def baseline_of(summary: Row, path: Path) -> float | None:
    """Mean accuracy of local-only training, where a summary says how much better the run was."""
    gain = summary.get("gain_over_local")
    try:
        return None if gain is None else float(summary["accuracy"]["mean"]) - float(gain)
    except (TypeError, ValueError, LookupError) as error:
        raise InputError(
            f"'{path}' has no accuracy to compare with its gain_over_local; `scool resume {path.parent}` writes it again"
        ) from error
