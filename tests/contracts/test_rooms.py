"""The library is laid out in rooms, and imports go one way: left to right in the order below."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import scool_ppl

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "scool_ppl"
ORDER = (
    *("errors", "base", "tasks", "data", "graph", "train", "far", "look", "infer", "mix", "em"),
    *("deploy", "zoo", "plots", "runs", "workbench", "reproduce", "report", "cli"),
)
MOST = 12
UPWARD = {("em/em.py", "runs"), ("base/describe.py", "plots")}
"""The only calls to the right: EM.fit and EM.resume go to runs/fitting.py, what notebooks ask for to plots/notebook.py."""
NAMES = {
    *("EM", "Clients", "CooperationGraph", "CooperationModel", "Evidence", "Federation", "GraphPrior", "InputError"),
    *("AutoMeanField", "BlockBernoulli", "MomentELBO", "NaturalGradient", "OneHot", "ProjectedGradient", "SVIStep"),
    *("Schedule", "likelihoods", "load_federation", "load_model", "mixing", "peers", "priors"),
}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE and path.name != "__init__.py")
USERS = sorted(path for folder in ("models", "inference", "experiments") for path in (ROOT / folder).rglob("*.py"))


class Import(NamedTuple):
    """A name that a file takes from a module of the library."""

    module: str
    name: str

    @property
    def room(self) -> str:
        """The room it is taken from; the root itself is to the right of all."""
        inside = self.module.split(".")[1:] or ([self.name] if self.name in ORDER else ["root"])
        return inside[0]


def imports(path: Path) -> Iterator[Import]:
    """Everywhere in the file: under TYPE_CHECKING and inside functions, too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if (node.module or "").split(".")[0] == "scool_ppl":
                yield from (Import(node.module or "", alias.name) for alias in node.names)
        if isinstance(node, ast.Import):
            yield from (Import(a.name, "") for a in node.names if a.name.split(".")[0] == "scool_ppl")


def inside(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def test_the_rooms_are_those_of_the_order() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith(("_", "."))}
    assert folders == set(ORDER) - {"errors"}
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py", "errors.py"}
    assert len(MODULES) > 100, "the tests below look at something"


@pytest.mark.parametrize("path", MODULES, ids=inside)
def test_imports_go_left(path: Path) -> None:
    here, backwards = ORDER.index(room_of(path)), []
    for found in imports(path):
        known = found.room in ORDER and ORDER.index(found.room) <= here
        if not known and (inside(path), found.room) not in UPWARD:
            backwards.append(f"{found.module}: {found.name}")
    assert backwards == []


def test_an_import_to_the_right_would_be_seen(tmp_path: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from scool_ppl.runs import Run\n"
    text += "def f():\n    import scool_ppl\n    from scool_ppl import EM, graph\n"
    (tmp_path / "module.py").write_text(text)
    assert [found.room for found in imports(tmp_path / "module.py")] == ["runs", "root", "root", "graph"]


@pytest.mark.parametrize("path", MODULES, ids=inside)
def test_what_is_private_stays_in_its_room(path: Path) -> None:
    others = [found for found in imports(path) if found.room != room_of(path)]
    assert [f"{found.module}: {found.name}" for found in others if found.name.startswith("_")] == []


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=inside)
def test_a_room_has_a_dozen_modules_at_most_and_says_what_it_is(folder: Path) -> None:
    assert len([path for path in MODULES if path.parent == folder]) <= MOST
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))


@pytest.mark.parametrize("path", MODULES, ids=inside)
def test_every_module_has_its_test(path: Path) -> None:
    mirror = ROOT / "tests" / path.relative_to(PACKAGE).with_name(f"test_{path.name}")
    assert mirror.is_file()
    assert any(
        isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        for node in ast.walk(ast.parse(mirror.read_text()))
    )


def test_the_root_exports_the_names_that_users_know() -> None:
    assert set(scool_ppl.__all__) == NAMES
    assert all(hasattr(scool_ppl, name) for name in NAMES)


def test_the_plan_of_the_house_names_every_room_and_no_file_that_is_not_there() -> None:
    text = (PACKAGE / "README.md").read_text()
    told = re.findall(r"^\| `([a-z]+)/?` \|", text, flags=re.MULTILINE)
    assert tuple(told) == ORDER
    paths = set(re.findall(r"`([a-z_]+/[a-z_/]+(?:\.py)?)`", text))
    assert len(paths) > 10
    assert [path for path in paths if not (PACKAGE / path).exists() and not (ROOT / path).exists()] == []


@pytest.mark.parametrize("path", USERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_users_import_the_root_or_a_room(path: Path) -> None:
    """What models/, inference/ and experiments/ need is exported by a room's __init__."""
    for found in imports(path):
        folder = PACKAGE.joinpath(*found.module.split(".")[1:])
        assert (folder / "__init__.py").is_file(), f"{found.module} is a module inside a room"


def test_tests_import_no_other_test() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tests":
                assert (node.module or "").split(".")[1] == "helpers", f"{path}: {node.module}"
