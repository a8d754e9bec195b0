"""Every notebook of docs/ runs in a kernel of its own, warns of nothing, and is kept without what it printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs").rglob("*.ipynb"))


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def test_there_is_one() -> None:
    assert "first-steps.ipynb" in {path.name for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook: Any = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert outputs(notebook) == []
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the tests run two at a time
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    found = outputs(notebook)
    assert [output.text for output in found if output.get("name") == "stderr"] == [], "no warning, no control codes"
    kinds = {kind for output in found for kind in output.get("data", {})}
    assert {"text/html", "image/png"} <= kinds
    texts = [output.data["text/plain"] for output in found if "data" in output]
    assert all(len(text) < 300 for text in texts)
    bars = [output.data["text/html"] for output in found if "<progress" in output.get("data", {}).get("text/html", "")]
    assert [bar.split("</progress>")[0] for bar in bars] == ['<progress value="5" max="5">'] * 2, "each is replaced"
