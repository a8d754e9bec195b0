"""The pictures: what is drawn is what was given, on the axes given, and nothing global moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.graph.scores import same_group
from scool_ppl.plots.graph import draw_graph, layout
from scool_ppl.plots.history import draw_history
from scool_ppl.plots.matrix import draw_weights, draw_weights_over_rounds
from scool_ppl.plots.style import PALETTE, save_figure

GROUPS = tuple(i % 4 for i in range(20))


@pytest.fixture(autouse=True)
def _nothing_global_moves() -> Iterator[None]:
    figures, settings, backend = plt.get_fignums(), dict(mpl.rcParams), mpl.get_backend()
    yield
    assert plt.get_fignums() == figures
    assert dict(mpl.rcParams) == settings
    assert mpl.get_backend() == backend


def planted(groups: tuple[int, ...] = GROUPS, seed: int = 0, **fields: Any) -> CooperationGraph:
    count = len(groups)
    noise = torch.rand(count, count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    weights = 0.09 * noise + 0.85 * same_group(groups)
    names = tuple(f"client-{i}" for i in range(count))
    return CooperationGraph(weights, names, Peers.everybody(count), **({"groups": groups} | fields))


def edges_of(ax: Any) -> LineCollection:
    return next(collection for collection in ax.collections if isinstance(collection, LineCollection))


def history(rounds: int = 6) -> list[dict[str, Any]]:
    return [
        {
            "round": r,
            "elbo": -100.0 / r,
            "loss": 2.0 / r,
            "accuracy": {"mean": 0.5 + 0.05 * r, "std": 0.04, "worst10": 0.4 + 0.05 * r},
            "accuracy_trained": {"mean": 0.45 + 0.05 * r},
            "task_accuracy": {"mean": 0.55 + 0.05 * r},
            "graph": {"l1": 1.0 / r, "auc": 1 - 0.3 / r, "ari": 1 - 0.5 / r},
        }
        for r in range(1, rounds + 1)
    ]


def test_edges_drawn_are_those_above_the_threshold() -> None:
    graph = planted()
    ax = draw_graph(graph)
    assert len(edges_of(ax).get_segments()) == int((graph.weights >= 0.1).sum()) == 80
    assert len(edges_of(draw_graph(graph, threshold=0.0)).get_segments()) == 380
    widths = np.asarray(edges_of(ax).get_linewidth())
    order = np.sort(graph.weights[graph.weights >= 0.1].numpy())
    assert np.corrcoef(widths, order)[0, 1] > 0.999


def test_light_rows_are_drawn_relative_to_the_heaviest() -> None:
    weights = torch.full((50, 50), 0.02)
    names = tuple(map(str, range(50)))
    fedavg = CooperationGraph(weights, names, Peers.everybody(50), kind="point")
    assert len(edges_of(draw_graph(fedavg)).get_segments()) == 50 * 49


def test_an_edge_runs_from_sender_to_receiver() -> None:
    weights = torch.tensor([[0.0, 0.0], [0.9, 0.0]])
    graph = CooperationGraph(weights, ("a", "b"), Peers.everybody(2))
    (segment,) = edges_of(draw_graph(graph, positions={"a": (-1, 0), "b": (1, 0)})).get_segments()
    assert segment[0, 0] < -0.8
    assert segment[-1, 0] > 0.8


def test_nodes_have_the_colour_of_their_block_and_the_shape_of_their_group() -> None:
    graph = planted(memberships=torch.nn.functional.one_hot(torch.arange(20) // 10))
    positions = layout(graph)
    ax = draw_graph(graph, positions=positions)
    nodes = [c for c in ax.collections if isinstance(c, PathCollection)]
    assert len(nodes) == 4
    assert len({c.get_paths()[0].vertices.tobytes() for c in nodes}) == 4
    for group, collection in enumerate(nodes):
        members = [i for i in range(20) if GROUPS[i] == group]
        assert np.allclose(collection.get_offsets(), [positions[f"client-{i}"] for i in members])
        assert np.allclose(collection.get_facecolors(), [to_rgba(PALETTE[i // 10]) for i in members])
    assert sorted(text.get_text() for text in ax.texts) == sorted(map(str, range(20)))


def test_axes_given_are_returned() -> None:
    left, right = Figure().subplots(1, 2)
    assert draw_graph(planted(), left) is left
    assert draw_weights(planted(), right) is right
    figure = Figure()
    assert draw_history(history(), figure) is figure
    half = Figure().subfigures(1, 2)[0]
    assert draw_weights_over_rounds([planted()], half) is half


def test_blocks_are_apart() -> None:
    for groups in (GROUPS, (0,) * 30 + (1,) * 3 + (2, 3, 4)):
        graph = planted(groups, memberships=torch.nn.functional.one_hot(torch.tensor(groups)))
        places = np.array(list(layout(graph).values()))
        assert np.abs(places).max() == pytest.approx(1)
        members = [places[np.array(groups) == group] for group in sorted(set(groups))]
        centres = np.array([block.mean(axis=0) for block in members])
        radii = np.array([np.linalg.norm(block - block.mean(axis=0), axis=1).max() for block in members])
        gaps = np.linalg.norm(centres[:, None] - centres, axis=2) - radii - radii[:, None]
        assert gaps[~np.eye(len(members), dtype=bool)].min() > 0.1


def test_layout_repeats_with_its_seed() -> None:
    before = layout(planted(seed=0))
    assert layout(planted(seed=0)) == before
    assert layout(planted(seed=0), seed=1) != before


@pytest.mark.parametrize("count", [1, 2, 100])
def test_few_and_many_clients(count: int, tmp_path: Path) -> None:
    groups = tuple(i % 4 for i in range(count))
    graph = planted(groups, memberships=torch.nn.functional.one_hot(torch.tensor(groups)))
    save_figure(draw_graph(graph), tmp_path / "graph.png")
    save_figure(draw_weights(graph), tmp_path / "weights.png")
    assert len(list(tmp_path.iterdir())) == 2


def test_graph_without_edges_says_so() -> None:
    graph = CooperationGraph(torch.zeros(3, 3), ("a", "b", "c"), Peers.everybody(3))
    ax = draw_graph(graph)
    assert len(edges_of(ax).get_segments()) == 0
    legend = ax.get_legend()
    assert legend is not None
    assert legend.get_title().get_text() == "3 blocks, 3 clients; no edges"


def test_positions_must_be_complete() -> None:
    with pytest.raises(InputError, match="positions lack client 'client-1'"):
        draw_graph(planted(), positions={"client-0": (0, 0)})


def test_image_is_the_ordered_matrix() -> None:
    graph = planted()
    order = [i for group in range(4) for i in range(20) if GROUPS[i] == group]
    (image,) = draw_weights(graph).images
    shown = image.get_array()
    assert shown is not None
    expected = graph.dense().numpy()[np.ix_(order, order)]
    assert np.array_equal(np.ma.getdata(shown), expected)
    assert np.array_equal(np.ma.getmaskarray(shown), np.eye(20, dtype=bool))
    assert image.get_clim() == (0, 1)


def test_block_boundaries_are_drawn() -> None:
    ax = draw_weights(planted((0, 0, 1, 1, 1, 2)))
    assert {float(line.get_ydata()[0]) for line in ax.lines if line.get_xdata()[0] == 0} == {1.5, 4.5}  # type: ignore[index,arg-type]
    assert ax.get_xlabel() == "sender"
    assert ax.get_ylabel() == "receiver"
    assert [label.get_text() for label in ax.get_yticklabels()] == list("012345")


def test_rounds_share_order_and_scale_and_end_with_the_truth() -> None:
    graphs = {r: planted(seed=r, kind="point") for r in (1, 5, 10)}
    figure = draw_weights_over_rounds(graphs)
    panels = [ax for ax in figure.axes if ax.images]
    assert [ax.get_title() for ax in panels] == ["round 1", "round 5", "round 10", "truth"]
    order = np.argsort(GROUPS, kind="stable")
    drawn = [graphs[r].dense() for r in (1, 5, 10)] + [same_group(GROUPS)]
    for ax, matrix in zip(panels, drawn, strict=True):
        shown = ax.images[0].get_array()
        assert shown is not None
        assert np.array_equal(np.ma.getdata(shown), matrix.numpy()[np.ix_(order, order)])
    limits = {ax.images[0].get_clim() for ax in panels}
    assert limits == {(0.0, max(float(graph.weights.max()) for graph in graphs.values()))}


def test_many_rounds_are_thinned_and_no_truth_is_no_panel() -> None:
    figure = draw_weights_over_rounds([planted(seed=r, groups=(0, 1)) for r in range(30)], most=4)
    assert [ax.get_title() for ax in figure.axes if ax.images] == [
        "round 1",
        "round 11",
        "round 20",
        "round 30",
        "truth",
    ]
    blind = draw_weights_over_rounds([CooperationGraph(torch.zeros(2, 2), ("a", "b"), Peers.everybody(2))])
    assert [ax.get_title() for ax in blind.axes if ax.images] == ["round 1"]
    with pytest.raises(InputError, match="0 graphs"):
        draw_weights_over_rounds([])


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


@pytest.mark.parametrize("rounds", [1, 60])
def test_no_text_of_a_history_is_cut_off_or_overlaps(rounds: int) -> None:
    figure = draw_history(history(rounds), baseline=0.6)
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    page = figure.bbox
    boxes = []
    for ax in figure.axes:
        boxes += [ax.xaxis.label.get_window_extent(), ax.yaxis.label.get_window_extent()]
        legend = ax.get_legend()
        boxes += [] if legend is None else [legend.get_window_extent()]
    assert all(page.x0 <= b.x0 and b.x1 <= page.x1 and page.y0 <= b.y0 and b.y1 <= page.y1 for b in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_pictures_are_replaced_in_one_step(tmp_path: Path) -> None:
    for picture in (draw_weights(planted()), draw_history(history())):
        save_figure(picture, tmp_path / "picture.png")
        assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]
    with pytest.raises(InputError, match=r"cannot write .*expected a folder"):
        save_figure(draw_history(history()), tmp_path / "missing" / "picture.png")
    with pytest.raises(InputError, match=r"ends in '\.doc'"):
        save_figure(draw_history(history()), tmp_path / "picture.doc")
