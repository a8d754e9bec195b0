"""`scool` itself: a list of commands costs no import of the library, and every error is one line with a code."""

from __future__ import annotations

import errno
import io
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import typer

import scool_ppl
from scool_ppl.cli import commands
from scool_ppl.cli.main import COMMANDS, main, summaries
from scool_ppl.errors import ClientError, InputError, RunError, StoppedError
from tests.helpers.command import refused, scool


def test_help_is_what_the_commands_say_of_themselves() -> None:
    """Names and first lines are read off the source; the commands that run must be the same."""
    group = typer.main.get_command(commands.app)
    found = {name: command.get_short_help_str(limit=200) for name, command in group.commands.items()}  # type: ignore[attr-defined]
    assert dict(summaries()) == found
    answer = scool("--help").out
    for name, summary in found.items():
        assert f"{name} " in answer
        assert summary in answer


def test_commands_keep_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr("scool_ppl.base.machine.keep_memory", lambda: asked.append(True))
    assert scool("models").code == 0
    assert asked


@pytest.mark.parametrize("statement", ["import scool_ppl", "import scool_ppl; dir(scool_ppl)", "help"])
def test_neither_help_nor_the_root_imports_torch(statement: str) -> None:
    run = (
        "from scool_ppl.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
        if statement == "help"
        else statement
    )
    code = f"{run}\nimport sys\nassert not {{'torch', 'pyro', 'sklearn', 'numpy'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_version_and_short_help() -> None:
    assert scool("--version").out == f"scool_ppl {scool_ppl.__version__}\n"
    for command in ([], *([name] for name in COMMANDS), ["federations", "show"]):
        short, long = scool(*command, "-h"), scool(*command, "--help")
        assert short == long
        assert short.code == 0
        assert "Usage: scool" in short.out


def test_without_a_command_help_is_shown() -> None:
    for group in ((), ("flower",)):
        assert scool(*group) == scool(*group, "--help")


def test_a_command_that_is_none_is_one_line() -> None:
    assert "No such command 'fti'; see `scool --help`" in refused("fti")
    assert "No such option: --netwrk" in refused("fit", "--netwrk", "linear")
    assert "see `scool fit --help`" in refused("fit", "--netwrk", "linear")
    assert "see `scool federations show --help`" in refused("federations", "show")


def test_a_warning_is_one_line_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def warns() -> list[str]:
        for text in ("slow\n  and long", "slow\n  and long", "large"):
            with warnings.catch_warnings():  # after which Python forgets what it has shown
                warnings.simplefilter("default")
            warnings.warn(text, stacklevel=1)
        return []

    monkeypatch.setattr("scool_ppl.cli.models.model_names", warns)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with pytest.raises(SystemExit):
            main(["models"])
    assert capsys.readouterr().err.splitlines() == ["scool: slow and long", "scool: large"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("no such thing;\n  do that"), 2),
        (RunError("broke"), 3),
        (MemoryError(), 3),
        (OverflowError("int too big to convert"), 3),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory:\n  you tried to allocate 64 bytes"), 3),
        (OSError(errno.ENOSPC, "No space left on device"), 3),
        (ClientError({"client 0": "died"}), 3),
        (StoppedError("stopped"), 130),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_error_is_one_line_with_its_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("scool_ppl.cli.models.model_names", fails)
    with pytest.raises(SystemExit) as stop:
        main(["models"])
    assert stop.value.code == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("scool: ")


def test_output_onto_a_full_disk_is_one_line() -> None:
    command = [sys.executable, "-m", "scool_ppl", "--version"]
    with Path("/dev/full").open("w") as full:
        failed = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (failed.returncode, len(failed.stderr.splitlines())) == (3, 1)


def test_a_name_that_the_terminal_cannot_show_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", narrow)
    monkeypatch.setattr("scool_ppl.cli.models.model_names", lambda: print("größe") or [])
    with pytest.raises(SystemExit) as stop:
        main(["models"])
    narrow.flush()
    assert stop.value.code == 0
    assert narrow.buffer.getvalue().startswith(b"gr\\xf6\\xdfe")  # type: ignore[attr-defined]


def test_a_defect_is_not_told_as_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr("scool_ppl.cli.models.model_names", fails)
    with pytest.raises(RuntimeError, match="shapes differ"):
        main(["models"])


def test_the_root_has_its_rooms_and_nothing_else() -> None:
    assert scool_ppl.train.Clients is scool_ppl.Clients
    for name in ("nothing", "_private", "train.clients", "a.b"):
        assert not hasattr(scool_ppl, name)
