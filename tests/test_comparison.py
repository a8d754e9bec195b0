"""Models compared on the same clients: the rows and tables of numbers, the figure, and what the models share."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib.pyplot
import numpy as np
import pytest
import torch
from rich.console import Console

from scool_ppl import InputError, load_federation
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.plots.comparison import draw_comparison
from scool_ppl.workbench.compare import compare, labels, save_comparison
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.tables import COLUMNS, comparison, comparison_table, fit_table, markdown, number
from scool_ppl.workbench.workbench import Result, Workbench

SPEC = "permuted:digits:clients=4,groups=2,train=30,test=20"
SMALL = Settings(rounds=2, warmup_epochs=30, local_epochs=1, executor="stacked")


def summary(accuracy: float | None = 0.8, **fields: Any) -> dict[str, Any]:
    spread = {"mean": accuracy, "std": 0.05, "worst10": accuracy}
    return {
        "model": "mine",
        "federation": SPEC,
        "accuracy": spread,
        "accuracy_trained": {"mean": 0.7, "std": 0.1, "worst10": 0.5},
        "task_accuracy": spread,
        "graph": {"l1": 0.5, "auc": None, "ari": 1.0},
        "elbo": -12.25,
        "bytes": {"received": 2.5e6, "sent": 0.0},
        "seconds": {"train": 100.0, "look": 100.0, "infer": 100.0, "mix": 100.0},
        "total_seconds": {"train": 1.0, "look": 2.0, "infer": 0.5, "mix": 0.25},
        **fields,
    }


def result(name: str = "mine", **fields: Any) -> Result:
    return Result(name, None, summary(**fields), None)  # type: ignore[arg-type]


def text_of(renderable: Any, width: int = 120) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def graph(weight: float, num_clients: int = 4) -> CooperationGraph:
    weights = torch.full((num_clients, num_clients), weight).fill_diagonal_(0)
    return CooperationGraph(weights, tuple(f"client {i}" for i in range(num_clients)), Peers.everybody(num_clients))


def history(*accuracies: float | None) -> list[dict[str, Any]]:
    return [{"round": round, "accuracy": {"mean": value}} for round, value in enumerate(accuracies, 1)]


@pytest.fixture(scope="module")
def results() -> list[list[Result]]:
    """ring and local for two seeds."""
    return compare(
        [("local", {}), ("ring", {})], lambda seed: load_federation(SPEC, seed=seed), SMALL, [3, 4], progress=False
    )


def test_every_column_is_read_from_where_it_stands() -> None:
    values = {column: number(summary(gain_over_local=0.1, harmed=0.25), path) for column, path in COLUMNS.items()}
    assert values == {
        "accuracy": 0.8,
        "worst 10 %": 0.8,
        "before mixing": 0.7,
        "gain over local": 0.1,
        "harmed": 0.25,
        "graph L1": 0.5,
        "graph AUC": None,
        "blocks ARI": 1.0,
        "bound": -12.25,
        "MB received": 2.5,
        "seconds": 3.75,
    }
    assert number(summary(), COLUMNS["harmed"]) is None


def test_rows_are_means_and_deviations_over_seeds() -> None:
    accuracies = [0.7, 0.8, 0.95]
    (row,) = comparison([[result(accuracy=value)] for value in accuracies])
    assert row["model"] == "mine"
    assert row["accuracy"]["mean"] == pytest.approx(statistics.mean(accuracies))
    assert row["accuracy"]["std"] == pytest.approx(statistics.stdev(accuracies))
    assert row["graph AUC"] is None
    (row,) = comparison([[result(accuracy=value)] for value in (0.7, None, 0.9)])
    assert row["accuracy"]["mean"] == pytest.approx(0.8), "a seed without the number is left out"
    (row,) = comparison([[result()]])
    assert row["accuracy"] == {"mean": 0.8, "std": 0.0}


def test_the_table_shows_every_model_and_column() -> None:
    rows = comparison([[result("first", gain_over_local=0.125), result("second", accuracy=0.6)] for _ in range(2)])
    shown = text_of(comparison_table(rows, 2))
    for word in (
        *COLUMNS,
        "first",
        "second",
        "0.800 ±0.000",
        "0.600 ±0.000",
        "+0.125 ±0.000",
        "-12.2",
        "mean over 2 seeds",
    ):
        assert word in shown
    alone = text_of(comparison_table(comparison([[result("first")]]), 1))
    assert "±" not in alone
    assert "0.800" in alone
    long = comparison([[result("scool_sbm blocks=8 n_eff=2.0 keep=5", gain_over_local=0.1)] for _ in range(2)])
    narrow = text_of(comparison_table(long, 2), width=80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "…" not in narrow
    assert narrow.count("±0.000") == text_of(comparison_table(long, 2), width=200).count("±0.000")


def test_markdown_is_a_table_of_the_columns_asked_for() -> None:
    rows = comparison([[result(accuracy=0.75)]])
    assert markdown(rows, ["accuracy", "graph AUC"], 1).splitlines() == [
        "| model | accuracy | graph AUC |",
        "| --- | --- | --- |",
        "| mine | 0.750 | - |",
    ]


def test_the_table_of_a_fit_leaves_out_what_is_unknown() -> None:
    full = text_of(fit_table(result(gain_over_local=0.1, harmed=0.25)))
    for words in ("0.800 ± 0.050 over clients", "+0.100, 25% harmed", "l1 0.500, ari 1.000", "2.5 MB", "train 1.00"):
        assert words in full
    assert "auc" not in full
    bare = text_of(fit_table(result(accuracy=None, graph={"l1": None, "auc": None, "ari": None})))
    assert "harmed" not in bare
    assert "against the truth" not in bare
    assert "nan" not in bare


def test_models_meet_the_same_clients_initialisation_and_batches(results: list[list[Result]]) -> None:
    for seed, (local, ring) in zip((3, 4), results, strict=True):
        assert (local.summary["seed"], ring.summary["seed"]) == (seed, seed)
        for name, start in local.fit.state.start.items():
            assert torch.equal(start, ring.fit.state.initial[name])
        first = [fitted.fit.history[0] for fitted in (local, ring)]
        assert first[0]["loss"] == first[1]["loss"]
        assert first[0]["accuracy_trained"] == first[1]["accuracy_trained"], "before mixing nothing can differ"
        assert local.local is not None
        assert torch.equal(local.local.accuracy, local.fit.evaluation.accuracy), "the baseline is the model `local`"
        assert (local.summary["gain_over_local"], local.summary["harmed"]) == (0, 0)
    assert results[0][0].fit.history[0]["loss"] != results[1][0].fit.history[0]["loss"]


def test_a_comparison_is_written_as_table_runs_and_figure(results: list[list[Result]], tmp_path: Path) -> None:
    rows = save_comparison(results, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "run.json",
        "comparison.json",
        "comparison.md",
        "comparison.png",
    }
    written = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert written["table"] == rows == comparison(results)
    assert [[run["model"] for run in seed] for seed in written["runs"]] == [["local", "ring"]] * 2
    assert "torch" in written["versions"]
    with pytest.raises(InputError, match="not empty"):
        save_comparison(results, tmp_path / "out")


def test_one_model_with_other_hyperparameters_is_another_line() -> None:
    models = [("scool_sbm", {"blocks": 3}), ("scool_sbm", {"blocks": 5, "n_eff": 2.0}), ("local", {}), ("ring", {})]
    assert labels(models) == ["scool_sbm blocks=3", "scool_sbm blocks=5 n_eff=2.0", "local", "ring"]
    assert labels([("a/mine.py", {}), ("scool_sbm", {"blocks": 3})]) == ["mine", "scool_sbm"]
    with pytest.raises(InputError, match="scool_sbm blocks=3 was given twice"):
        labels([models[0], models[0]])
    (both,) = compare(
        [("scool_sbm", {"blocks": 2}), ("scool_sbm", {"blocks": 3})],
        lambda seed: load_federation(SPEC, seed=seed),
        Settings(rounds=1, warmup_epochs=1, executor="stacked"),
        [0],
        progress=False,
    )
    assert [fitted.name for fitted in both] == ["scool_sbm blocks=2", "scool_sbm blocks=3"]
    assert [row["model"] for row in comparison([both])] == [fitted.name for fitted in both]


def test_local_only_training_is_done_once() -> None:
    bench = Workbench(load_federation(SPEC), SMALL, progress=False)
    assert bench.local is bench.local
    assert bench.clients is bench.clients


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rounds": 0}, "rounds=0"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"learning_rate": float("inf")}, "positive rate"),
        ({"e_step": "natrual"}, "did you mean 'natural'"),
        ({"device": "gpu"}, "unknown device 'gpu'; known: cpu, cuda"),
        ({"device": "cuda:7"} if not torch.cuda.is_available() else {"device": "tpu"}, "device"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_settings_refuse_what_cannot_be_run(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Settings(**change)


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_the_figure_has_a_panel_a_model_and_a_curve_a_model(count: int, tmp_path: Path) -> None:
    models = {f"model {i}": (graph(i / 10), history(0.1 * i, 0.2 + 0.05 * i)) for i in range(count)}
    figure = draw_comparison(models)
    axes = [ax for part in figure.subfigs for ax in part.axes]
    panels, (curves,) = [ax for ax in axes if ax.images], [ax for ax in axes if ax.get_xlabel() == "round"]
    assert [ax.get_title() for ax in panels] == list(models)
    for i, ax in enumerate(panels):
        drawn = np.asarray(ax.images[0].get_array(), dtype=float)
        assert np.nanmax(drawn) == pytest.approx(i / 10)
    assert [line.get_label() for line in curves.lines] == list(models)
    assert [text.get_text() for text in curves.get_legend().get_texts()] == list(models)
    looks = {(line.get_color(), line.get_linestyle()) for line in curves.lines}
    assert len(looks) == count
    for i, line in enumerate(curves.lines):
        assert np.allclose(line.get_xydata(), [[1, 0.1 * i], [2, 0.2 + 0.05 * i]])
    figure.savefig(tmp_path / "figure.png")
    assert matplotlib.pyplot.get_fignums() == []


def test_long_labels_stay_above_their_own_panel() -> None:
    figure = draw_comparison({"scool_sbm blocks=8 n_eff=2.0 keep=5": (graph(0.5), history(0.5))})
    (title,) = [ax.get_title() for part in figure.subfigs for ax in part.axes if ax.images]
    assert title.split() == ["scool_sbm", "blocks=8", "n_eff=2.0", "keep=5"]
    assert max(map(len, title.splitlines())) <= 22


def test_an_unknown_accuracy_is_a_gap_in_the_curve() -> None:
    figure = draw_comparison({"mine": (graph(0.5), history(0.5, None, 0.7))})
    (line,) = [line for part in figure.subfigs for ax in part.axes if ax.get_xlabel() for line in ax.lines]
    assert np.isnan(line.get_ydata()).tolist() == [False, True, False]
