"""Every command and snippet of the documents runs.

In this process, and each once: what two documents show alike, and what another test runs already, is not run again.
"""

from __future__ import annotations

import inspect
import re
import runpy
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest

from scool_ppl import load_federation
from scool_ppl.reproduce.catalogue import experiment_names
from scool_ppl.zoo import check_model
from scool_ppl.zoo.load import model_path
from tests.helpers.hospitals import hospitals, write_hospitals
from tests.helpers.programs import run_command, run_program

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(path for path in ROOT.rglob("*.md") if not {".venv", "runs", "node_modules"} & set(path.parts))
# Commands of the documents are run with less work: fewer rounds, shorter training, comparisons on few clients.
QUICK = ["--warmup-epochs", "3", "--local-epochs", "1", "--quiet"]
SMALL = "permuted:digits:clients=6,groups=2,train=20,test=20"
# make and pre-commit are what CI and the reader run around the tests.
SKIPPED = ("make", "pre-commit")


def provide(text: str, folder: Path) -> None:
    """The reader's own files that a command or snippet names: a folder of tables, one table of all clients."""
    if "hospitals" in text:
        write_hospitals(folder / "hospitals", rows=30)
    if "new.csv" in text:
        hospitals(rows=5)["hospital 2"].drop(columns=["died", "days"]).to_csv(folder / "new.csv", index=False)
    if "all.csv" in text:
        tables = [table.assign(hospital=name) for name, table in hospitals(rows=30).items()]
        pd.concat(tables).to_csv(folder / "all.csv", index=False)


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


SNIPPETS = {
    text: f"{named(path)}-{number}"
    for path in DOCUMENTS
    for number, text in enumerate(blocks(path, "python"))
    if not text.startswith(" ")  # a few lines of a file that is shown in full above
}
COMMANDS = {
    line.split("#")[0].strip(): named(path)
    for path in DOCUMENTS
    for text in blocks(path, "sh")
    for line in text.splitlines()
    if line.strip() and not line.startswith(SKIPPED)
}
PROGRAMS = [command for command in COMMANDS if command.startswith("python inference/")]
EXPERIMENTS = [command for command in COMMANDS if re.match(r"scool reproduce \w", command)]
TESTS = [command for command in COMMANDS if command.startswith("python -m pytest")]
OTHERS = [command for command in COMMANDS if command not in {*PROGRAMS, *EXPERIMENTS, *TESTS}]


def test_there_is_something_to_test() -> None:
    assert len(DOCUMENTS) >= 8
    assert len(SNIPPETS) >= 6
    assert len(OTHERS) >= 7
    assert PROGRAMS
    assert EXPERIMENTS
    assert TESTS
    assert [command for command in OTHERS if not command.startswith("scool ")] == [], "tell this file how to run them"


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text())
    assert [link for link in links if not link.startswith("http") and not (path.parent / link).exists()] == []


@pytest.mark.parametrize("text", SNIPPETS, ids=SNIPPETS.values())
def test_snippet(text: str, tmp_path: Path) -> None:
    path = tmp_path / "snippet.py"
    path.write_text(text)
    provide(text, tmp_path)
    run_program(path, tmp_path)
    if (
        "def build(num_clients" in text and "Bernoulli(logits=odds)" not in text
    ):  # the trap, which has a test of its own
        assert [line for line in check_model(path) if line.passed is False] == []


def test_the_trap_of_the_tutorial_is_caught_and_its_remedy_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = blocks(ROOT / "models" / "README.md", "python")
    place = next(number for number, snippet in enumerate(text) if "Bernoulli(logits=odds)" in snippet)
    trap, remedy = text[place], text[place + 1]
    (tmp_path / "mine.py").write_text(trap)
    assert run_command(["check", "mine.py"], tmp_path) == 2
    assert "not linear in its moments" in capsys.readouterr().out
    start = trap.index("        same = (")
    end = trap.index("\n\ndef build")
    repaired = trap[:start] + remedy + trap[end:]
    (tmp_path / "mine.py").write_text(
        repaired.replace("import CooperationModel", "import BlockBernoulli, CooperationModel")
    )
    assert run_command(["check", "mine.py"], tmp_path) == 0, capsys.readouterr().out


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two rounds, for the commands that begin with one."""
    folder = tmp_path_factory.mktemp("run")
    assert (
        run_command(["fit", "scool_sbm", "blocks=2", "--clients", "8", "--out", "run", "--rounds", "2", *QUICK], folder)
        == 0
    )
    return folder / "run"


@pytest.fixture(scope="module")
def a_run_of_hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of tables."""
    folder = tmp_path_factory.mktemp("hospitals")
    spec = f"tables:{write_hospitals(folder / 'hospitals', rows=30)}:target=died"
    assert run_command(["fit", "local", "--federation", spec, "--out", "run", "--rounds", "1", *QUICK], folder) == 0
    return folder / "run"


@pytest.mark.parametrize("command", OTHERS, ids=lambda command: f"{COMMANDS[command]}-{command}"[:90])
def test_command(command: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    words = shlex.split(command)[1:]
    provide(command, tmp_path)
    if words[0] == "fit":
        words += ["--rounds", "2", *QUICK]
    if words[0] == "compare":
        words += ["--rounds", "1", "--seeds", "1", *QUICK]
        words += [] if "--federation" in words else ["--federation", SMALL]
    if words[0] == "choose":
        words += ["--rounds", "1", "--federation", SMALL, *QUICK]
    if words[0] in ("plot", "resume", "predict", "export", "report", "posterior"):
        fixture = "a_run_of_hospitals" if "hospitals" in words[1] else "a_run"
        shutil.copytree(request.getfixturevalue(fixture), tmp_path / words[1])
    if words[0] == "resume":
        words = ["3" if word == "25" else word for word in words]
    assert run_command(words, tmp_path) == 0


@pytest.mark.parametrize("command", EXPERIMENTS)
def test_the_experiments_that_documents_run_are_those_that_tests_run(command: str) -> None:
    """tests of the room reproduce run every experiment of the catalogue at scale smoke."""
    _, _, name, *options = shlex.split(command)
    assert name in experiment_names()
    assert options == ["--scale", "smoke"]


@pytest.mark.parametrize("command", PROGRAMS)
def test_the_arguments_of_a_program_are_those_that_it_takes(command: str) -> None:
    """test_programs.py runs every program of inference/, on less; here: may the reader call it like this?"""
    _, path, *words = shlex.split(command)
    main = runpy.run_path(str(ROOT / path))["main"]
    given = inspect.signature(main).bind(*words).arguments
    assert not set(given) - {"model", "models", "spec", "rounds", "draws", "blocks", "out"}, "tell this test what it is"
    for model in (*given.get("models", ()), given.get("model", "local")):
        assert model_path(model).is_file()
    assert load_federation(given.get("spec", "digits")).num_clients > 2
    assert all(int(given.get(number, 1)) >= 1 for number in ("rounds", "draws", "blocks"))


@pytest.mark.parametrize("command", TESTS)
def test_the_tests_that_documents_name_exist(command: str) -> None:
    paths = [word for word in shlex.split(command)[3:] if not word.startswith("-")]
    assert paths
    assert all((ROOT / path).is_file() for path in paths)
