"""What pyproject.toml promises: imports are of what is declared, extras that are named exist, versions are said."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
SAID = {"mlflow": {"mlflow"}, "IPython": {"ipython"}}
"""Modules whose distribution may be another here (mlflow-skinny), or which only a notebook imports, where it is."""
FILES = [
    path for folder in ("scool_ppl", "models", "inference", "experiments") for path in (ROOT / folder).rglob("*.py")
]


def named(requirements: list[str]) -> set[str]:
    """Their names, as package indexes write them."""
    names = (re.match(r"[\w.-]+", one) for one in requirements)
    return {re.sub(r"[-_.]+", "-", name[0]).lower() for name in names if name}


def imported(tree: ast.AST) -> Iterator[str]:
    """Top-level modules of other projects, also those imported inside functions or by their name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            yield from (str(one.value).split(".")[0] for one in node.args if isinstance(one, ast.Constant))


def found(trees: list[ast.AST]) -> set[str]:
    beside = (path.stem for path in (ROOT / "experiments").rglob("*.py"))  # programs that import one another
    own = {"scool_ppl", *beside, *sys.stdlib_module_names}
    return {module for tree in trees for module in imported(tree)} - own


def test_every_import_is_of_something_declared() -> None:
    belongs = packages_distributions()
    declared = named([*PROJECT["dependencies"], *(one for extra in EXTRAS.values() for one in extra)]) | {"ipython"}
    modules = found([ast.parse(path.read_text()) for path in FILES])
    assert {"torch", "pandas", "tqdm", "jinja2"} <= modules, "this test sees imports of every kind"
    told = {module: SAID.get(module) or named(belongs.get(module, [module])) for module in modules}
    assert {module: names for module, names in told.items() if not names & declared} == {}


def test_what_is_imported_with_a_module_needs_no_extra() -> None:
    """An optional library is imported inside the function that needs it; Flower by modules that its apps alone import."""
    belongs = packages_distributions()
    trees: list[ast.AST] = []
    flower = set((ROOT / "scool_ppl" / "far" / "flower").glob("*.py"))
    importing = re.compile(r"^(?:from|import) scool_ppl\.far\.flower\b", flags=re.MULTILINE)
    assert {path for path in FILES if importing.search(path.read_text())} <= flower | {ROOT / "scool_ppl/cli/flower.py"}
    for path in set(FILES) - flower:
        tree = ast.parse(path.read_text())
        tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.With)]
        trees.append(tree)
    needed = found(trees)
    assert {"torch", "tqdm", "rich"} <= needed
    assert {module for module in needed if not named(belongs[module]) & named(PROJECT["dependencies"])} == set()


def test_every_extra_that_is_named_exists() -> None:
    texts = [path.read_text() for path in (*FILES, ROOT / "README.md", *(ROOT / "docs").glob("*.md"))]
    extras = {
        one for text in texts for all_of in re.findall(r"scool_ppl\[([\w,-]+)\]", text) for one in all_of.split(",")
    }
    assert {"tables", "report", "export"} <= extras <= {*EXTRAS}
    assert {"tensorboard", "mlflow", "wandb"} <= {*EXTRAS}, "loggers name extras after themselves"
    table = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "install.md").read_text(), flags=re.MULTILINE)
    assert {name for row in table for name in re.findall(r"`([\w-]+)`", row)} == {*EXTRAS}, "it says what each is for"


@pytest.mark.parametrize("minor", [11, 12, 13])
def test_versions_of_python_are_said_and_this_is_one(minor: int) -> None:
    assert f"Programming Language :: Python :: 3.{minor}" in PROJECT["classifiers"]
    assert f"3.{minor}" in (ROOT / "docs" / "install.md").read_text()
    assert f"Programming Language :: Python :: 3.{sys.version_info.minor}" in PROJECT["classifiers"]
