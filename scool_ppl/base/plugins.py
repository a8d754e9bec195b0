"""Running a user's Python file: what it defines, and what it raises as one line."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from scool_ppl.errors import USER_ERRORS, InputError, ScoolError, original

MOST_LETTERS = 300
"""Letters of a message that are shown: Pyro and torch may write pages."""


def beside_package(folder: str) -> Path:
    """A folder of the project: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    packed = package / f"_{folder}"
    return packed if packed.is_dir() else package.parent / folder


def load_python(path: Path, function: str, parameters: str = "scale") -> ModuleType:
    """The module of a Python file that has a function of this name."""
    name = f"scool_ppl_{function}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"cannot load '{path}' as Python, expected a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and Pyro look modules up by name
    with user_code(f"cannot load '{path}'", path):
        spec.loader.exec_module(module)
    if not callable(getattr(module, function, None)):
        raise InputError(f"'{path}' has no function `{function}({parameters})`; add one")
    return module


@contextmanager
def user_code(what: str | None = None, file: Path | None = None) -> Iterator[None]:
    """Turns what a user's file raises into one line, with the file and the line; the cause stays attached.

    what: said first, but where the line is one of `file`, which says it all. Without `what`, the code inside may call the
    user's: an error that does not come from there passes through.
    """
    try:
        yield
    except ScoolError:
        raise
    except USER_ERRORS as error:
        place = _place(error)
        if what is None and place is None:
            raise
        inside = file is not None and place is not None and place[0].resolve() == file.resolve()
        prefix = "" if what is None or inside else f"{what}: "
        raise InputError(f"{prefix}{told(error)}; {_remedy(error)}") from error


def told(error: BaseException) -> str:
    """An error as "file, line: kind: message", the line being the user's where the error comes from there."""
    first, where = original(error), user_line(error)
    text = first.msg if isinstance(first, SyntaxError) and where is not None else str(first)
    message = " ".join(text.split())[:MOST_LETTERS]
    return f"{'' if where is None else f'{where}: '}{type(first).__name__}: {message}"


def user_line(error: BaseException) -> str | None:
    """ "mine.py, line 14": the innermost line of a traceback that is of no library; None if there is none."""
    place = _place(error)
    if place is None:
        return None
    path, line = place
    here = Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}, line {line}"


def _place(error: BaseException) -> tuple[Path, int | None] | None:
    """The file and the line of `user_line`; of what cannot be read as Python, those that Python names."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename is not None:
        frames.append((error.filename, error.lineno))
    found = [(Path(name), line) for name, line in frames if not name.startswith("<")]
    return next((place for place in reversed(found) if not _of_a_library(place[0])), None)


def _of_a_library(path: Path) -> bool:
    """Is it of Python, of what is installed, or of this package? Its models are as any user's."""
    if path.is_relative_to(beside_package("models")):
        return False
    return any(path.is_relative_to(folder) for folder in _LIBRARIES)


_LIBRARIES = {
    Path(__file__).resolve().parents[1],
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
}


def _remedy(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, RuntimeError) and ("dtype" in text or "scalar type" in text):
        return "the graph's numbers are float64: make yours with dtype=torch.float64, or write .double() behind them"
    return "correct the file" if user_line(error) is None else "correct that line"
