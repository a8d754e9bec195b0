"""Every command and snippet of the documents runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(path for path in ROOT.rglob("*.md") if not {".venv", "runs", "node_modules"} & set(path.parts))
# Commands of the documents are run with less work: fewer rounds, shorter training.
QUICK = ["--rounds", "2", "--warmup-epochs", "3", "--local-epochs", "1", "--quiet"]
# make is what CI and the reader run; it is not run inside the tests that it runs.
SKIPPED = ("make", "pre-commit", "python -m pytest")


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)


SNIPPETS = [
    pytest.param(path, text, id=f"{path.relative_to(ROOT)}-{number}")
    for path in DOCUMENTS
    for number, text in enumerate(blocks(path, "python"))
    if not text.startswith(" ")
]
COMMANDS = [
    pytest.param(path, line.split("#")[0].strip(), id=f"{path.relative_to(ROOT)}-{line.split('#')[0].strip()}"[:90])
    for path in DOCUMENTS
    for text in blocks(path, "sh")
    for line in text.splitlines()
    if line.strip() and not line.startswith(SKIPPED)
]


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    # One thread each: the tests run two at a time.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=240, env=environment)


def test_there_is_something_to_test() -> None:
    assert len(DOCUMENTS) >= 8
    assert len(SNIPPETS) >= 6
    assert len(COMMANDS) >= 7


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text())
    assert [link for link in links if not link.startswith("http") and not (path.parent / link).exists()] == []


@pytest.mark.parametrize(("path", "text"), SNIPPETS)
def test_snippet(path: Path, text: str, tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(text)
    done = run([sys.executable, "snippet.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    if "def build(" in text and "Bernoulli(logits=odds)" not in text:
        checked = run([sys.executable, "-m", "scool_ppl", "check", "snippet.py"], tmp_path)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_trap_of_the_tutorial_is_caught_and_its_remedy_works(tmp_path: Path) -> None:
    text = blocks(ROOT / "models" / "README.md", "python")
    trap, remedy = text[0], text[1]
    (tmp_path / "mine.py").write_text(trap)
    checked = run([sys.executable, "-m", "scool_ppl", "check", "mine.py"], tmp_path)
    assert checked.returncode == 2
    assert "not linear in its moments" in checked.stdout
    start = trap.index("        same = (")
    end = trap.index("\n\ndef build")
    repaired = trap[:start] + remedy + trap[end:]
    (tmp_path / "mine.py").write_text(
        repaired.replace("import CooperationModel", "import BlockBernoulli, CooperationModel")
    )
    checked = run([sys.executable, "-m", "scool_ppl", "check", "mine.py"], tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_command(path: Path, command: str, tmp_path: Path) -> None:
    words = shlex.split(command)
    if words[0] == "scool":
        call = [sys.executable, "-m", "scool_ppl", *words[1:]]
        if words[1] in ("fit", "compare"):
            call += QUICK + (["--seeds", "1"] if words[1] == "compare" else [])
        if words[1] in ("plot", "resume"):
            made = run([*call[:3], "fit", "local", "--clients", "8", "--out", words[2], *QUICK], tmp_path)
            assert made.returncode == 0, made.stderr
    else:
        assert words[0] == "python", f"{command}: tell this test how to run it"
        (tmp_path / "inference").symlink_to(ROOT / "inference")
        # The third and second argument of the programs are the rounds.
        call = [sys.executable, *("2" if word == "20" else word for word in words[1:])]
    done = run(call, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
