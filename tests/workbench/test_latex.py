"""The LaTeX table: what is bold follows from the paired differences over seeds, and nothing breaks the markup."""

from __future__ import annotations

import math
import statistics

import pytest

from scool_ppl.workbench.latex import best, escaped, latex
from tests.helpers.results import result


def seeds(**accuracies: list[float]) -> list[list[object]]:
    count = len(next(iter(accuracies.values())))
    return [[result(name, accuracy=values[seed]) for name, values in accuracies.items()] for seed in range(count)]


def test_the_best_is_ahead_by_more_than_a_standard_error_of_the_paired_difference() -> None:
    ahead, behind = [0.81, 0.85, 0.79], [0.80, 0.83, 0.79]
    gaps = [one - other for one, other in zip(ahead, behind, strict=True)]
    assert statistics.mean(gaps) > statistics.stdev(gaps) / math.sqrt(3), "paired"
    assert statistics.mean(gaps) < statistics.stdev(ahead) / math.sqrt(3), "unpaired it would not be told"
    assert best(seeds(first=behind, second=ahead), "accuracy") == 1
    assert best(seeds(first=[0.80, 0.90], second=[0.85, 0.86]), "accuracy") is None
    assert best(seeds(first=[0.8, 0.9], second=[0.8, 0.9]), "accuracy") is None, "ties are nobody's"
    assert best(seeds(first=[0.8], second=[0.5]), "accuracy") is None, "one seed has no standard error"
    assert best(seeds(first=[0.8, 0.8], second=[0.5, 0.6]), "bound") is None, "bounds are not compared"


def test_less_is_better_where_less_is_better() -> None:
    rows = [[result("a", harmed=0.2), result("b", harmed=0.1)], [result("a", harmed=0.3), result("b", harmed=0.1)]]
    assert best(rows, "harmed") == 1


def test_the_table_is_whole_and_escaped() -> None:
    text = latex(seeds(scool_sbm=[0.9, 0.9], local=[0.7, 0.8]))
    body = [line for line in text.splitlines() if not line.startswith("%")]
    assert body[0].startswith("\\begin{tabular}{lr")
    assert body[-1] == "\\end{tabular}"
    assert [line for line in body if "rule" in line] == ["\\toprule", "\\midrule", "\\bottomrule"]
    rows = [line for line in body if line.endswith("\\\\")]
    assert {line.count(" & ") for line in rows} == {body[0].removeprefix("\\begin{tabular}").count("r")}, (
        "as many cells as columns"
    )
    assert rows[1].startswith("scool\\_sbm & $\\mathbf{0.900 \\pm 0.000}$")
    assert "worst 10 \\% " in rows[0]
    assert "graph AUC" not in text, "nobody knows it"
    assert "nothing is bold" in latex(seeds(a=[0.9], b=[0.1]))
    assert "mathbf" not in latex(seeds(a=[0.9], b=[0.1]))


@pytest.mark.parametrize(("text", "found"), [("a_b", r"a\_b"), ("5 %", r"5 \%"), ("a\\b", r"a\textbackslash{}b")])
def test_letters_that_mean_something_to_latex(text: str, found: str) -> None:
    assert escaped(text) == found
