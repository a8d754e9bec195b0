"""The pictures of a run are drawn from the files of its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot
import pytest
import torch

from scool_ppl.errors import InputError
from scool_ppl.runs.folder import Run
from tests.helpers.runs import finished


@pytest.mark.parametrize("summary", ['{"gain_over_local": 0.1}', '{"gain_over_local": "x", "accuracy": {"mean": 1}}'])
def test_a_summary_that_cannot_be_drawn_is_one_line(tmp_path: Path, summary: str) -> None:
    run = finished(tmp_path / "run", 1)
    (run.path / "summary.json").write_text(summary)
    with pytest.raises(InputError, match="no accuracy to compare with its gain_over_local"):
        Run.open(run.path).draw()


def test_pictures_are_drawn_from_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened again, a run draws what it drew at its end: all kept rounds, the truth, and the line of local-only."""
    from scool_ppl.plots import history as curves
    from scool_ppl.plots import matrix

    seen: list[Any] = []

    def history(rows: Any, baseline: float | None) -> Any:
        seen.append((len(rows), baseline))
        return draw_history(rows, baseline=baseline)

    def weights(graphs: Any, truth: Any) -> Any:
        seen.append(([(round, float(graph.dense()[0, 1])) for round, graph in graphs.items()], truth.tolist()))
        return draw_weights(graphs, truth=truth)

    draw_history, draw_weights = curves.draw_history, matrix.draw_weights_over_rounds
    monkeypatch.setattr(curves, "draw_history", history)
    monkeypatch.setattr(matrix, "draw_weights_over_rounds", weights)
    run = finished(tmp_path / "run", 3, pictures=True, truth=torch.ones(3, 3).fill_diagonal_(0))
    pictures = {path: path.read_bytes() for path in run.path.glob("*.png")}
    assert set(Run.open(run.path).draw()) == set(pictures)
    assert {path: path.read_bytes() for path in run.path.glob("*.png")} == pictures
    assert len(seen) == 4
    assert seen[:2] == seen[2:]
    assert seen[0] == ([(1, 0.01), (2, 0.02), (3, 0.03)], [[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    assert seen[1][0] == 3
    assert seen[1][1] == pytest.approx(0.53 - 0.2)
    assert matplotlib.pyplot.get_fignums() == []
