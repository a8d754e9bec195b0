"""Which report a path asks for, and its file."""

from __future__ import annotations

import os
from pathlib import Path

from scool_ppl.base.files import read_json, replacing
from scool_ppl.errors import InputError
from scool_ppl.report.comparison import comparison_page
from scool_ppl.report.results import results_page
from scool_ppl.report.run import run_page
from scool_ppl.runs.folder import MARK, Run

COMPARISON, REPORT = "comparison.json", "report.html"
AGAIN = "write it again"


def write_report(path: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Write the report of a run's folder, of a comparison's, or of a .json with a comparison or an experiment's results.

    Returns the file's path; default: report.html in the folder, or beside the .json with its name.
    """
    if out is not None and Path(out).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out is '{out}', expected a file that ends in .html; rename it")
    page, target = _page(Path(path))
    target = target if out is None else Path(out)
    with replacing(target) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return target


def _page(source: Path) -> tuple[str, Path]:
    """The page, and where it belongs."""
    if (source / COMPARISON).is_file():
        return comparison_page(read_json(source / COMPARISON, AGAIN), source / COMPARISON), source / REPORT
    if (source / MARK).is_file():
        return run_page(Run.open(source)), source / REPORT
    if source.suffix == ".json" and source.is_file():
        content = read_json(source, AGAIN)
        page = comparison_page(content, source) if "table" in content else results_page(source)
        return page, source.with_suffix(".html")
    raise InputError(
        f"'{source}' is no folder of a run or a comparison and no .json of one, expected the --out of `scool fit` or "
        "`scool compare`, or the .json that `scool reproduce` writes; check the path"
    )
