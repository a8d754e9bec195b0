"""The `scool` command: its commands by name, imported when one is run, and the one line that an error is."""

from __future__ import annotations

import ast
import errno
import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from scool_ppl.errors import ClientError, InputError, RunError, ScoolError, StoppedError

COMMANDS = {
    **dict.fromkeys(("fit", "resume"), "commands"),
    "compare": "compare",
    "transfer": "transfer",
    **dict.fromkeys(("choose", "posterior"), "choose"),
    **dict.fromkeys(("predict", "export"), "networks"),
    **dict.fromkeys(("plot", "check"), "commands"),
    "models": "models",
    "report": "report",
    "reproduce": "reproduce",
    "federations": "federations",
    "flower": "flower",
}
"""Where each command is written. The library behind them takes seconds to import, a list of them must not."""

TRACEBACK = "--traceback"

UsageError = typer.BadParameter.__base__  # typer's own, or click's in older releases


class Commands(TyperGroup):
    """All commands, of which help reads name and first line off their source."""

    def list_commands(self, context: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: Any, name: str) -> Any:
        if name not in COMMANDS:
            return None
        found: Any = typer.main.get_command(import_module("scool_ppl.cli.commands").app)
        return found.get_command(context, name)

    def format_commands(self, context: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(summaries()))


def summaries() -> Iterator[tuple[str, str]]:
    """Each command and the first line of what it says of itself."""
    for name, module in COMMANDS.items():
        tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text())
        (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
        yield name, (ast.get_docstring(function) or "").partition("\n")[0]


app = typer.Typer(
    cls=Commands,
    help="Learn who should learn from whom: cooperation graphs between clients, inferred while they train.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from scool_ppl.base.describe import own_version

        typer.echo(f"scool_ppl {own_version()}")
        raise typer.Exit


TOGETHER = {"fit", "resume"}
"""Commands that several processes of torchrun can do together."""


@app.callback()
def scool(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_version)
    ] = False,
    everything: Annotated[
        bool, typer.Option(TRACEBACK, help="show where an error comes from, also after COMMAND")
    ] = False,
) -> None:
    """Commands are found by `Commands`; without one, help is what is meant."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        return
    many = int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    if many > 1 and context.invoked_subcommand not in TOGETHER:
        found = f"torchrun has begun {many} processes of `scool {context.invoked_subcommand}`"
        raise InputError(f"{found}, expected one of {', '.join(sorted(TOGETHER))}; leave torchrun out")
    from scool_ppl.base.machine import keep_memory

    keep_memory()


def main(arguments: list[str] | None = None) -> None:
    """Run the command; errors are one line on standard error: exit code 2 for bad input, 3 for a failed run.

    With --traceback, wherever it stands, what Python has to say of an error comes before that line.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    everything = TRACEBACK in options
    arguments = [word for word in options if word != TRACEBACK] + arguments[len(options) :]
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that a terminal cannot show is no reason to fail at the end
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _once()
            with _within_limits():
                code = app(arguments, standalone_mode=False, prog_name="scool")
        if code == 130:  # newer typer returns this where older ones raise
            code = _complain("interrupted", 130)
    except InputError as error:
        code = _complain(error, 2, everything)
    except (RunError, ClientError) as error:
        code = _complain(error, 3, everything)
    except StoppedError as error:
        code = _complain(error, 130)
    except UsageError as error:  # type: ignore[misc]
        command = error.ctx.command_path if error.ctx else "scool"
        code = _complain(f"{error.format_message().rstrip('.')}; see `{command} --help`", 2)
    except (KeyboardInterrupt, typer.Abort):
        code = _complain("interrupted", 130)
    sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def _within_limits() -> Iterator[None]:
    """Numbers that fit into no tensor, tensors that fit into no memory and what a full disk does not take are told as a
    run that failed.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = f"'{error.filename}'" if error.filename else "the output"
        raise RunError(f"cannot write {where}: {error.strerror}; make room there, or write elsewhere") from error
    except (MemoryError, OverflowError, RuntimeError) as error:
        memory = isinstance(error, MemoryError) or "allocate" in str(error)  # as torch says on any device
        if isinstance(error, ScoolError) or not (memory or isinstance(error, OverflowError)):
            raise
        found = "not enough memory" if memory else f"a number is too large ({error})"
        raise RunError(
            f"{found}; take fewer clients, epochs or steps, smaller batches or a narrower network"
        ) from error


def _once() -> Callable[..., None]:
    """Shows a warning in one line, the first time: Python forgets what it has shown whenever a filter changes."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: object) -> None:
        line = f"scool: {' '.join(str(message).split())}"
        if line not in shown:
            shown.add(line)
            typer.echo(line, err=True)

    return show


def _complain(message: object, code: int, everything: bool = False) -> int:
    if everything and isinstance(message, BaseException):
        typer.echo("".join(traceback.format_exception(message)), err=True, nl=False)
    elif isinstance(message, InputError) and message.__cause__ is not None:
        message = f"{message} ({TRACEBACK} shows where it comes from)"
    typer.echo(f"scool: {' '.join(str(message).split())}", err=True)
    return code


if __name__ == "__main__":
    main()
