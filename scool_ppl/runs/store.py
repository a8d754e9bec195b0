"""A store of results, cell by cell: one JSON file, a line for each cell, replaced in one step after every cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from scool_ppl.base.codec import Row
from scool_ppl.base.files import replacing
from scool_ppl.errors import InputError


class Requested(Protocol):
    """A cell: the name that it is kept under, and what was asked for."""

    @property
    def key(self) -> str: ...

    @property
    def request(self) -> Row: ...


class Store:
    """Cells by key; a cell whose request has changed counts as missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = self._read()

    def _read(self) -> dict[str, Row]:
        if not self.path.exists():
            return {}
        try:
            content = json.loads(self.path.read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {self.path}: {error}; repair it, or move it away to start anew") from error
        if not isinstance(content, dict) or not all(isinstance(record, dict) for record in content.values()):
            raise InputError(f"{self.path} is not a result store; expected an object of cells; move it away")
        return content

    def get(self, cell: Requested) -> Row | None:
        """The stored numbers of a cell, if they are of the same request."""
        record = self.records.get(cell.key)
        return record if record is not None and record.get("request") == as_stored(cell.request) else None

    def put(self, cell: Requested, record: Row) -> None:
        """Keep a cell and write the file, with what another command may have added to it."""
        self.records |= self._read()
        self.records[cell.key] = as_stored({"request": cell.request, **record})
        lines = [f"{json.dumps(key)}: {json.dumps(record)}" for key, record in sorted(self.records.items())]
        with replacing(self.path) as temporary:
            temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def as_stored(record: Row) -> Row:
    """A record as it comes back from the file."""
    stored: Row = json.loads(json.dumps(record))
    return stored
