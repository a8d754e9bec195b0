"""Tables that people read: every number from where it stands, means over seeds, and nothing where nothing is known."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from rich.console import Console

from scool_ppl.workbench.compare import Outcome
from scool_ppl.workbench.tables import (
    COLUMNS,
    columns_of,
    comparison,
    comparison_table,
    fit_table,
    markdown,
    markdown_table,
    mean_history,
    number,
    round_lines,
    rounds_table,
)
from tests.helpers.results import result, summary


def text_of(renderable: Any, width: int = 120) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_every_column_is_read_from_where_it_stands() -> None:
    full = summary(gain_over_local=0.1, below_local=0.5, harmed=0.25)
    values = {column: number(full, path) for column, path in COLUMNS.items()}
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
        "epsilon": None,
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
        *(column for column in COLUMNS if column != "epsilon"),
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


def test_epsilon_is_the_most_that_a_client_has_revealed_and_has_a_column_where_it_is_bounded() -> None:
    each = {"a": 1.5, "b": 2.25}
    rows = comparison([[result("first", epsilon=each), result("second", epsilon={**each, "b": None})]])
    assert [row["epsilon"] for row in rows] == [{"mean": 2.25, "std": 0.0}, None]
    assert "2.250" in text_of(comparison_table(rows, 1))
    assert "epsilon" in columns_of(rows)
    assert "epsilon" not in columns_of(rows[1:])
    assert "epsilon" not in text_of(comparison_table(rows[1:], 1))
    told = text_of(fit_table(result(epsilon=each, delta=1e-3, epsilon_of="training and evidence")))
    assert "epsilon of training and evidence" in told
    assert "1.5 to 2.25, at delta 0.001" in told
    assert "unbounded" in text_of(fit_table(result(epsilon={"a": None}, delta=1e-3, epsilon_of="training")))


def test_markdown_is_a_table_of_the_columns_asked_for() -> None:
    rows = comparison([[result(accuracy=0.75)]])
    assert markdown(rows, ["accuracy", "graph AUC"], 1).splitlines() == [
        "| model | accuracy | graph AUC |",
        "| --- | --- | --- |",
        "| mine | 0.750 | - |",
    ]


def test_the_table_of_a_fit_leaves_out_what_is_unknown() -> None:
    full = text_of(fit_table(result(gain_over_local=0.1, below_local=0.25, harmed=0.1)))
    for words in (
        "0.800 ± 0.050 over clients",
        "+0.100, 25% of clients below it, 10% beyond noise",
        "l1 0.500, ari 1.000",
        "2.5 MB",
        "train 1.00",
    ):
        assert words in full
    for words in ("auc", "rely on", "after mixing"):
        assert words not in full
    bare = text_of(fit_table(result(accuracy=None, graph={"l1": None, "auc": None, "ari": None})))
    assert "beyond noise" not in bare
    assert "against the truth" not in bare
    assert "nan" not in bare
    assert lines_of(fit_table(result(elbo=None)))["bound"] == "-"


def lines_of(table: Any) -> dict[str, str]:
    """The second column of a table of two, by the first."""
    cells = (line.split("│") for line in text_of(table).splitlines() if line.count("│") == 3)
    return {name.strip(): value.strip() for _, name, value, _ in cells}


def test_the_table_of_a_fit_says_what_clients_rely_on_the_most_relied_on_first() -> None:
    relied = {"local": 0.2, "blocks": 0.5046, "blocks, tuned": 0.2904, "everybody": 0.0051, "everybody, tuned": 0.0049}
    mixed = {"mean": 0.65, "std": 0.2, "worst10": 0.4}
    shown = lines_of(fit_table(result(relies_on=relied, accuracy_mixed=mixed)))
    assert shown["clients rely on"] == "blocks 50%; blocks, tuned 29%; local 20%; everybody 1%"
    assert list(shown)[:4] == ["accuracy", "worst 10 %", "after mixing", "before mixing"]
    assert (shown["accuracy"], shown["after mixing"]) == ("0.800 ± 0.050 over clients", "0.650")
    assert "clients rely on" not in lines_of(fit_table(result()))


def test_a_score_that_is_no_accuracy_bears_its_own_name() -> None:
    rows = comparison([[result("first", score="R2")]])
    shown = text_of(comparison_table(rows, 1))
    assert "R2" in shown
    assert "accuracy" not in shown
    assert markdown(rows, ["accuracy"], 1).startswith("| model | R2 |")
    assert "task R2" in text_of(fit_table(result(score="R2")))


def test_any_texts_are_a_markdown_table() -> None:
    assert markdown_table(["a", "b"], [["1", "2"], ["3", "4"]]).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| 1 | 2 |",
        "| 3 | 4 |",
    ]


def recorded(name: str, seed: int, *accuracies: float | None) -> Outcome:
    """An outcome of which name, seed and history are read."""
    spread = [{"mean": value, "std": 0.1, "worst10": value} for value in accuracies]
    history = [{"round": n, "accuracy": one, "accuracy_trained": one} for n, one in enumerate(spread, 1)]
    return Outcome(name, {"seed": seed}, history, None, [])  # type: ignore[arg-type]


def test_rounds_are_means_over_seeds() -> None:
    early, late = ([0.1 * seed] * 3 + [None, 0.2 * seed, 0.3 * seed] for seed in (1, 2))
    results = [[recorded("mine", 1, *early)], [recorded("mine", 2, *late)]]
    curve = [row["accuracy"]["mean"] for row in mean_history([seed[0].history for seed in results])]
    assert curve == pytest.approx([0.15, 0.15, 0.15, None, 0.3, 0.45])
    assert mean_history([results[0][0].history]) is results[0][0].history
    lines = round_lines(results)
    assert [(line["seed"], line["round"]) for line in lines] == [(seed, n) for seed in (1, 2) for n in range(1, 7)]
    assert lines[-1]["accuracy"] == pytest.approx(0.6)
    shown = [line.split() for line in text_of(rounds_table(results)).splitlines() if line.strip()[:1].isdigit()]
    assert [line[0] for line in shown] == ["1", "2", "5", "6"], "those that people ask for, and the last"
    assert shown[-1][1:] == ["0.450", f"±{statistics.stdev([0.3, 0.6]):.3f}"]
