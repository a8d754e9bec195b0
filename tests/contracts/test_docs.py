"""Every command and snippet of the documents runs, each once.

Pages of docs/ are gone through from top to bottom by test_stories.py, and the priors of models/README.md are fitted by
test_own_priors.py. Here is the rest, each alone: what two documents show alike, and what other tests run, is run once.
"""

from __future__ import annotations

import inspect
import json
import re
import runpy
import shlex
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from scool_ppl import load_federation
from scool_ppl.reproduce.catalogue import experiment_names
from scool_ppl.zoo import check_model
from scool_ppl.zoo.load import model_path
from tests.helpers.hospitals import write_hospitals
from tests.helpers.pages import ROOT, steps
from tests.helpers.programs import run_command, run_program

DOCUMENTS = sorted(
    path for path in ROOT.rglob("*.md") if not {".venv", ".venv-flower", "runs", "node_modules"} & set(path.parts)
)
# Commands of the documents are run with less work: fewer rounds, shorter training, comparisons on few clients.
QUICK = ["--warmup-epochs", "3", "--local-epochs", "1", "--quiet"]
SMALL = "permuted:digits:clients=6,groups=2,train=20,test=20"
# make, pip and pre-commit are what CI and the reader run around the tests.
SKIPPED = ("make", "pip", "pre-commit")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def programs(path: Path) -> list[str]:
    return [step.text for step in steps(path) if step.language == "python"]


STORIES = [path for path in DOCUMENTS if path.parent == ROOT / "docs"]
TOLD = {command for path in STORIES for step in steps(path) for command in step.commands()}
SNIPPETS = {
    text: f"{named(path)}-{number}"
    for path in DOCUMENTS
    for number, text in enumerate(programs(path))
    if path not in STORIES
    and not text.startswith(" ")  # a few lines of a file that is shown in full above
    and not (path == ROOT / "models" / "README.md" and "(GraphPrior)" in text)
}
COMMANDS = {
    command: named(path)
    for path in DOCUMENTS
    for step in steps(path)
    for command in step.commands()
    if command not in TOLD and not command.startswith(SKIPPED)
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


@pytest.mark.parametrize(
    ("document", "stores"),
    [
        ("README.md", ["experiments/default_federation.json"]),
        ("experiments/methods/RESULTS.md", ["experiments/methods/digits.json", "experiments/methods/mnist.json"]),
    ],
)
def test_tables_of_comparisons_are_their_numbers(document: str, stores: list[str]) -> None:
    text = (ROOT / document).read_text().replace("**", "").replace("−", "-").replace("± ", "±").replace(" %", "%")
    tables = re.findall(r"^\|(.*\| accuracy \|.*)\|\n\|[-| ]+\n((?:\|.*\n)+)", text, flags=re.MULTILINE)
    assert len(tables) == len(stores)
    for (heads, lines), store in zip(tables, stores, strict=True):
        measures = [head.strip().removesuffix(" of clients") for head in heads.split("|")[1:]]
        rows = json.loads((ROOT / store).read_text())["table"]
        assert len(measures) >= 4
        for line, row in zip(lines.splitlines(), rows, strict=True):
            for measure, cell in zip(measures, line.split("|")[2:-1], strict=True):
                found = row[measure.replace("10%", "10 %")]
                sign = "+" if measure == "gain over local" else ""
                told = f"{found['mean']:{sign}.3f} ±{found['std']:.3f}"
                blank = "" if row["model"] == "local" else None  # of itself it has no gain
                assert cell.strip() in (told, f"{found['mean']:.0%}", blank), (line, measure)


@pytest.mark.parametrize("text", SNIPPETS, ids=SNIPPETS.values())
def test_snippet(text: str, tmp_path: Path) -> None:
    path = tmp_path / "snippet.py"
    path.write_text(text)
    run_program(path, tmp_path)
    if "def build(num_clients" in text:
        assert [line for line in check_model(path) if line.passed is False] == []


def test_the_trap_of_the_tutorial_is_caught_and_its_remedy_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "models" / "README.md"
    text = programs(page)
    place = next(number for number, snippet in enumerate(text) if "Bernoulli(logits=odds)" in snippet)
    trap, remedy = text[place], text[place + 1]
    (tmp_path / "mine.py").write_text(trap)
    assert run_command(["check", "mine.py"], tmp_path) == 2
    assert "not linear in its moments" in capsys.readouterr().out
    start = trap.index("        same = (")
    end = trap.index("\n\ndef build")
    assert trap[start:end].strip().count("\n") == 3
    assert "replace the last four lines of `model`" in page.read_text()
    repaired = trap[:start] + remedy + trap[end:]
    (tmp_path / "mine.py").write_text(
        repaired.replace("import CooperationModel", "import BlockBernoulli, CooperationModel")
    )
    assert run_command(["check", "mine.py"], tmp_path) == 0, capsys.readouterr().out


def model_of(run: str) -> str:
    """The model of the command that writes this folder: the documents say it before they use the folder."""
    (fit,) = {command for command in COMMANDS if command.startswith("scool fit") and f"--out {run}" in command}
    word = shlex.split(fit)[2]
    return "hedge" if word.startswith("-") else word


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a run of two rounds of a model, for the commands that begin with one."""

    @cache
    def written(model: str) -> Path:
        folder = tmp_path_factory.mktemp(model)
        assert run_command(["fit", model, "--clients", "8", "--out", "run", "--rounds", "2", *QUICK], folder) == 0
        return folder / "run"

    return written


@pytest.mark.parametrize("command", OTHERS, ids=lambda command: f"{COMMANDS[command]}-{command}"[:90])
def test_command(command: str, tmp_path: Path, run_of: Callable[[str], Path]) -> None:
    words = shlex.split(command)[1:]
    if "hospitals" in command:
        write_hospitals(tmp_path / "hospitals", rows=30)
    if words[0] == "fit":
        words += ["--rounds", "2", *QUICK]
    if words[0] == "compare":
        models = words[1 : words.index("--seeds")]
        assert all(model_path(model).is_file() for model in models)
        words = ["compare", *models[:5], *words[1 + len(models) :], "--rounds", "1", "--seeds", "1", *QUICK]
        words += [] if "--federation" in words else ["--federation", SMALL]
    if words[0] == "choose":
        words += ["--rounds", "1", "--federation", SMALL, *QUICK]
    if words[0] == "transfer":
        words += ["--rounds", "1", "--clients", "8"]
    if words[0] in ("plot", "resume", "predict", "export", "report", "posterior", "transfer"):
        shutil.copytree(run_of(model_of(words[1])), tmp_path / words[1])
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
