"""Comparisons on regression and on text: who wins is what the data were made for, and the score has its own name."""

from __future__ import annotations

import pytest
import torch

from scool_ppl.data.generated import sine, text
from scool_ppl.plots.comparison import draw_comparison
from scool_ppl.plots.history import draw_history
from scool_ppl.runs.rows import spread
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.tables import comparison, comparison_table, fit_table, markdown
from scool_ppl.workbench.workbench import Workbench
from tests.helpers.tasks import federation


def test_text_the_graph_finds_the_languages_and_helps() -> None:
    data = text(torch.Generator().manual_seed(0), clients=8, groups=2)
    bench = Workbench(data, Settings(executor="stacked"), progress=False)
    local, everybody = (bench.fit(model).summary for model in ("local", "fedavg"))
    learned = {model: bench.fit(model).summary for model in ("scool_sbm", "federico")}
    for summary in learned.values():
        assert summary["accuracy"]["mean"] > local["accuracy"]["mean"] + 0.01
        assert summary["accuracy"]["mean"] > everybody["accuracy"]["mean"] + 0.1
        assert summary["graph"]["ari"] == 1
    assert learned["scool_sbm"]["graph"]["l1"] < 0.05


@pytest.mark.parametrize("network", ["linear", "auto"])
def test_sine_nobody_is_served_by_one_line_for_all(network: str) -> None:
    data = sine(torch.Generator().manual_seed(0))
    bench = Workbench(data, Settings(rounds=10, network=network, executor="stacked"), progress=False)
    found = {model: bench.fit(model).summary["accuracy"]["mean"] for model in ("local", "fedavg", "federico")}
    assert found["local"] > found["fedavg"] + 0.15
    assert found["federico"] > found["fedavg"] + 0.15


def test_the_score_has_the_name_of_the_task() -> None:
    from rich.console import Console

    bench = Workbench(federation("sine"), Settings(rounds=1, warmup_epochs=1, executor="stacked"), progress=False)
    result = bench.fit("local")
    assert result.summary["score"] == "R2"
    rows = comparison([[result]])
    console = Console(width=120)
    with console.capture() as capture:
        console.print(fit_table(result), comparison_table(rows, 1))
    shown = capture.get()
    assert "R2" in shown
    assert "task R2" in shown
    assert "accuracy" not in shown
    assert markdown(rows, ["accuracy", "harmed"], 1).startswith("| model | R2 | harmed |")
    labels = [ax.get_ylabel() for ax in draw_history(result.fit.history).axes]
    assert labels[0] == "R2"
    figure = draw_comparison({"local": (result.fit.graph, result.fit.history)})
    assert "R2, mean over clients" in [ax.get_ylabel() for part in figure.subfigs for ax in part.axes]


def test_the_band_of_a_score_below_zero_is_drawn_around_its_mean() -> None:
    row = {"round": 1, "score": "R2", "accuracy": spread(torch.tensor([-3.0, -1.0]))}
    figure = draw_history([row, {**row, "round": 2}])
    band = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (-3, -1)
