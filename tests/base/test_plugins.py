"""Running a user's Python file: what it defines is found, and what it raises becomes one line with its cause."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pyro
import pyro.distributions as dist
import pytest
from pyro import poutine

from scool_ppl.base.plugins import beside_package, load_python, user_code
from scool_ppl.errors import InputError


def test_a_file_with_the_function_is_a_module(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\nimport dataclasses\n"
        "@dataclasses.dataclass\nclass Part:\n    size: int\n"
        "def build(size):\n    return Part(size)\n"
    )
    part = load_python(path, "build").build(3)
    assert dataclasses.asdict(part) == {"size": 3}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"has no function `build\(scale\)`; add one"),
        ("build = 3\n", "has no function `build"),
        ("def build(:\n", "line 1: SyntaxError: invalid syntax; correct that line$"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("assert False, 'of the user'\n", "AssertionError: of the user"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        load_python(path, "build")
    assert "\n" not in str(caught.value)
    assert str(caught.value).count("mine.py") == 1, "the file is named once"


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("def build(): ...")
    with pytest.raises(InputError, match=r"cannot load .* as Python, expected a \.py file"):
        load_python(tmp_path / "mine.txt", "build")
    with pytest.raises(InputError, match="FileNotFoundError"):
        load_python(tmp_path / "absent.py", "build")


def test_what_the_user_raises_is_kept_as_the_cause() -> None:
    error = KeyError("x")
    with (
        pytest.raises(
            InputError, match=r"the model of 'a.py': .*, line \d+: KeyError: 'x'; correct that line"
        ) as caught,
        user_code("the model of 'a.py'"),
    ):
        raise error
    assert caught.value.__cause__ is error


def test_the_line_is_the_users_innermost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of the library it calls, nor that of who calls it; relative to where the user is."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import json\n\n\ndef inner():\n    return json.loads('{')\n\n\ndef build():\n    return inner()\n"
    )
    build = load_python(tmp_path / "mine.py", "build").build
    with pytest.raises(InputError, match=r"^mine.py, line 5: JSONDecodeError: .*; correct that line$"), user_code():
        build()


def test_what_failed_is_said_where_the_line_does_not_say_it(tmp_path: Path) -> None:
    """The file of the line is another one than that of what failed, or there is no line."""
    (tmp_path / "helper.py").write_text("def build():\n    return 1 / 0\n")
    build = load_python(tmp_path / "helper.py", "build").build
    for call, words in ((build, r"helper.py, line 2: Zero"), (lambda: json.loads(), r"TypeError: loads\(\)")):
        failed = "build of 'mine.py' failed"
        with (
            pytest.raises(InputError, match=f"^{failed}: .*{words}") as caught,
            user_code(failed, tmp_path / "mine.py"),
        ):
            call()
        assert str(caught.value).count("mine.py") == 1


def test_what_is_not_the_users_passes_through_where_nothing_else_is_said() -> None:
    with pytest.raises(json.JSONDecodeError):
        user_code()(json.loads)("{")


def test_an_error_of_precision_says_what_to_do() -> None:
    with pytest.raises(InputError, match=r"got: .*float64.*\.double\(\)"), user_code():
        raise RuntimeError("expected m1 and m2 to have the same dtype, but got: float != double")


def test_what_pyro_adds_to_an_error_is_left_out() -> None:
    def model() -> None:
        pyro.sample("x", dist.Normal(0.0, 1.0))
        raise ValueError("of the user")

    with pytest.raises(InputError, match=r"ValueError: of the user; correct that line$"), user_code():
        poutine.trace(model).get_trace()


@pytest.mark.parametrize("error", [InputError("said well already"), KeyboardInterrupt(), SystemExit(3)])
def test_errors_of_this_library_and_requests_to_stop_pass_through(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, user_code("it"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("folder", ["models", "experiments"])
def test_the_files_of_the_project_lie_beside_the_package(folder: str) -> None:
    assert list(beside_package(folder).glob("*.py"))
