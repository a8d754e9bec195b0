"""Which report a path asks for, and its file."""

from __future__ import annotations

import json
import os
from pathlib import Path

from scool_ppl.base.files import read_regular, replacing
from scool_ppl.errors import InputError
from scool_ppl.report.comparison import COMPARISON, comparison_page
from scool_ppl.report.results import results_page
from scool_ppl.report.run import run_page
from scool_ppl.runs.folder import MARK, Run


def write_report(path: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Write the report of a run's folder, a comparison's, or an experiment's result store; returns the file's path.

    Default of `out`: report.html in the folder, or beside the store with its name.
    """
    source = Path(path)
    if source.suffix == ".json" and source.is_file() and source.name not in (MARK, COMPARISON):
        page, target = results_page(source), source.with_suffix(".html")
    else:
        folder = source if source.is_dir() else source.parent if source.is_file() else source
        if not (folder / MARK).is_file():
            raise InputError(
                f"'{path}' is no folder of a run or a comparison and no result store; expected the --out of `scool fit` "
                "or `scool compare`, or a .json of `scool reproduce`"
            )
        page = comparison_page(folder) if (folder / COMPARISON).is_file() else run_page(Run.open(folder))
        target = folder / "report.html"
    target = target if out is None else Path(out)
    with replacing(target) as temporary:
        temporary.write_text(page)
    return target


def read_object(path: Path) -> dict[str, object]:
    """The object in a JSON file."""
    try:
        content = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read {path}: {error}; write it again") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds {type(content).__name__}, expected an object; write it again")
    return content
