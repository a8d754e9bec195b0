"""CSV: a row a round, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scool_ppl.base.files import replacing
from scool_ppl.errors import InputError
from scool_ppl.runs.loggers.base import Logger, Scalars, occupied


class CSV(Logger):
    """A table with a row a round; the settings are in a JSON file beside it."""

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        self.path = Path(path)

    @classmethod
    def of_run(cls, folder: Path, settings: Mapping[str, Any]) -> CSV:
        return cls(folder / "log.csv", settings)

    def open(self, settings: Mapping[str, str], *, goes_on: bool) -> int:
        rows = self._rows()
        if rows and not goes_on:
            raise occupied(self.path, len(rows))
        self._columns = list(rows[0]) if rows else None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path.with_suffix(".settings.json")) as temporary:
            temporary.write_text(json.dumps(dict(settings), indent=2) + "\n")
        if self.path.exists():
            with replacing(self.path) as temporary, temporary.open("w", newline="") as file:
                self._save(file, rows, header=bool(rows))
        return int(rows[-1]["round"]) if rows else 0

    def _rows(self) -> list[dict[str, str]]:
        """The whole rows of the file; half of one that a killed process has left is none."""
        if not self.path.exists():
            return []
        lines = self.path.read_text().splitlines(keepends=True)
        rows = list(csv.DictReader(line for line in lines if line.endswith("\n")))
        if not all((row.get("round") or "").isdecimal() for row in rows):
            raise InputError(f"'{self.path}' has no column of rounds, expected the log of a run; choose another file")
        return rows

    def write(self, round: int, values: Scalars) -> None:
        first = self._columns is None
        self._columns = self._columns or ["round", *values]
        with self.path.open("a", newline="") as file:
            self._save(file, [{"round": round, **values}], header=first)

    def _save(self, file: Any, rows: Sequence[Mapping[str, Any]], *, header: bool) -> None:
        writer = csv.DictWriter(file, self._columns or [], extrasaction="ignore", lineterminator="\n")
        if header:
            writer.writeheader()
        writer.writerows(rows)

    def close(self, error: BaseException | None) -> None:
        self._columns = None  # every row is in the file already
