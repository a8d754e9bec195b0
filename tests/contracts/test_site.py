"""The documentation builds as a site without a warning, has a page a room, and asks no other machine for anything."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "site"
FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"(https?:)?//[^\"]*\"")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [*command, "--config-file", str(FOLDER / "mkdocs.yml")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_and_room_is_there(site: Path) -> None:
    rooms = {path.name for path in (ROOT / "scool_ppl").iterdir() if (path / "__init__.py").is_file()} - {"cli"}
    assert {path.stem for path in (site / "api").glob("*.html")} == {room for room in rooms if not room.startswith("_")}
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / "docs" / f"{page.stem}.html").is_file()
        assert f"](docs/{page.name})" in (ROOT / "README.md").read_text(), "every page can be reached from the README"
    index = (site / "index.html").read_text()
    assert "Who should learn from whom?" in index, "the README"
    assert 'href="docs/first-steps.html"' in index, "a notebook"
    assert (site / "experiments" / "figures" / "default_graph.png").is_file()
    assert 'id="scool_ppl.runs.loggers.TensorBoard"' in (site / "api" / "runs.html").read_text()
    assert "half way between what cooperation can reach" in (site / "api" / "look.html").read_text(), "docstrings"


def test_it_fetches_nothing(site: Path) -> None:
    assert FETCHED.search('<script src="https://elsewhere/x.js">'), "this test can fail"
    for page in site.rglob("*.html"):
        assert FETCHED.search(page.read_text()) is None, page


def test_a_notebook_is_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# First\n", "steps"]},
        {"cell_type": "code", "source": ["1 + 1"], "outputs": [{"data": {"text/plain": ["2"]}}]},
        {"cell_type": "code", "source": ["draw()"], "outputs": [{"data": {"image/png": "QUJD\n"}}]},
    ]
    (tmp_path / "steps.ipynb").write_text(json.dumps({"cells": cells}))
    hook = runpy.run_path(str(FOLDER / "hook.py"))
    page = hook["notebook"](tmp_path / "steps.ipynb")
    assert page.startswith("# First\nsteps\n\n```python\n1 + 1\n```\n\n```text\n2\n```")
    assert page.endswith("![output](data:image/png;base64,QUJD)")
