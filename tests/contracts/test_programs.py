"""Every file of inference/ runs as a program, from another folder, and says and writes what it promises."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest

from tests.helpers.programs import run_program

FOLDER = Path(__file__).parents[2] / "inference"
SMALL = "permuted:digits:clients=4,groups=2,train=20,test=20"
DEPLOYED = ["out/deployed/deployment.json", "out/deployed/networks.safetensors"]
# Program -> its arguments, the files that it writes below the folder it is run in, and words that it prints.
PROGRAMS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "fit": (
        ["ring", SMALL, "1", "out"],
        ["out/run.json", "out/history.jsonl", "out/graph.graphml", *DEPLOYED],
        ["accuracy", "graph against the truth", "out/graph.graphml"],
    ),
    "compare": (
        [SMALL, "1", "out", "local", "fedavg"],
        [
            *("out/run.json", "out/cells.json", "out/clients.csv", "out/rounds.csv", "out/comparison.png"),
            *(f"out/comparison.{ending}" for ending in ("json", "md", "csv", "tex")),
            *("out/graphs/local-seed-0.graphml", "out/graphs/fedavg-seed-0.graphml"),
        ],
        ["local", "fedavg", "out/comparison.png"],
    ),
    "deploy": ([SMALL, "1"], [], ["scool_sbm, tuned", "stacked: accuracy", "one network: accuracy"]),
    "posterior": (["scool_sbm", SMALL, "1", "20"], [], ["20 draws of the graph", "edges", "client 3"]),
    "churn": (
        ["scool_sbm", f"{SMALL},order=listed", "1", "out"],
        ["out/history.jsonl", "out/graph.graphml", "out/graph.png"],
        ["client 2 and client 3 join", "client 0 and client 1 leave", "round   3: 2 clients", "history.jsonl"],
    ),
    "mcmc": ([SMALL, "1", "20", "2"], [], ["r_hat", "coefficient b", "distance 0 to 3", "edges: probabilities differ"]),
    "choose_prior": ([SMALL, "1", "2"], [], ["scool_sbm blocks=2", "scool_mmsbm", "ring", "highest bound"]),
}


def check_output(name: str, text: str, folder: Path) -> None:
    _, files, words = PROGRAMS[name]
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    # What a checkpoint is made of is tested elsewhere.
    assert {file for file in found if "checkpoints" not in file} == set(files)
    for word in words:
        assert word in text
    for path in folder.rglob("*.graphml"):
        assert nx.read_graphml(path).number_of_nodes() == (2 if name == "churn" else 4)


def test_every_program_is_covered() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(PROGRAMS), "give every program its arguments above"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_how_to_run_it(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    assert f"python inference/{name}.py" in (ast.get_docstring(ast.parse(text)) or "")
    assert len(text.splitlines()) <= 60


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "fit"])
def test_a_program_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_program(FOLDER / f"{name}.py", tmp_path, PROGRAMS[name][0])
    check_output(name, capsys.readouterr().out, tmp_path)


def test_the_shortest_program_runs_in_a_python_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "fit.py"), *PROGRAMS["fit"][0]]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # the tests run two at a time
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    check_output("fit", done.stdout, tmp_path)
