"""Documents as a reader goes through them: what they show, and a page with all its steps, as printed, in one folder."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import scool_ppl
from tests.helpers.programs import run_command, run_program, run_torchrun

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r'^```(sh|python)(?: title="([^"\n]+)")?\n(.*?)^```', flags=re.MULTILINE | re.DOTALL)
BEFORE = re.compile(r"goes on from \[[^]]+\]\(([^)]+)\)")


class Step(NamedTuple):
    """A block of a document: commands, a program, or a file that the reader saves under its title."""

    line: int
    language: str
    title: str | None
    text: str

    def commands(self) -> list[str]:
        """The lines of a block of commands, without what is said about them."""
        lines = [line.split("#")[0].strip() for line in self.text.splitlines()] if self.language == "sh" else []
        return [line for line in lines if line]


def steps(document: Path) -> list[Step]:
    text = document.read_text()
    return [Step(text[: found.start()].count("\n") + 1, *found.groups()) for found in FENCE.finditer(text)]


def stories() -> list[tuple[Path, ...]]:
    """The pages of docs/, those together that go on from one another."""
    before = {page: BEFORE.search(page.read_text()) for page in sorted((ROOT / "docs").glob("*.md"))}
    after = {(page.parent / found[1]).resolve(): page for page, found in before.items() if found}
    found = []
    for page in (page for page, earlier in before.items() if earlier is None):
        story = [page]
        while story[-1] in after:
            story.append(after[story[-1]])
        found.append(tuple(story))
    return found


def run_page(page: Path, folder: Path) -> None:
    """All steps of a page in their order; a page's programs are one session, and `pip` is for who reads."""
    session: dict[str, object] = {}
    for step in steps(page):
        place = f"{page.name}, line {step.line}"
        if step.title:
            (folder / step.title).write_text(step.text)
        elif step.language == "python":
            program = folder / f"{page.stem}-{step.line}.py"
            program.write_text(step.text)
            session = run_program(program, folder, names=session)
        for command in step.commands():
            program, *words = shlex.split(command)
            if program != "pip":
                run = run_torchrun if program == "torchrun" else run_command
                assert run(words, folder) == 0, f"{place}: {command}"


if __name__ == "__main__":
    print("with", scool_ppl.__file__)
    run_page(Path(sys.argv[1]), Path.cwd())
