"""What a run's folder says of its clients: the table of clients.csv, and who fares how with and without the others."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.runs.folder import Run

Column = list[float | str | None]

FILE = "clients.csv"


class Clients(NamedTuple):
    """Columns by name, each with an entry for every client in the order of the graph; None where undefined."""

    columns: dict[str, Column]

    def numbers(self, name: str) -> list[float | None]:
        """A column of numbers, None where it or an entry is missing."""
        count = len(next(iter(self.columns.values())))
        return [value if isinstance(value, float) else None for value in self.columns.get(name, [None] * count)]

    @property
    def gains(self) -> list[float | None]:
        """How much better each is than alone."""
        return self.numbers("gain_over_local")


def read_clients(
    run: Run, graph: CooperationGraph, blocks: NDArray[np.int64], components: Sequence[str | None] | None = None
) -> Clients:
    """clients.csv, or what the graph knows where there is no such file or it is of other clients; with the block of each,
    and the component that it uses most.
    """
    path = run.path / FILE
    rows = _rows(path) if path.is_file() else []
    by_name = {row.get("client", ""): row for row in rows}
    if rows and set(by_name) == set(graph.names):
        names = [name for name in rows[0] if name]
        table: dict[str, Column] = {name: [_value(by_name[c].get(name)) for c in graph.names] for name in names}
        table["client"] = list(graph.names)  # one that is called 12 stays a name
    else:
        table = {"client": list(graph.names)}
        if graph.samples is not None:
            table["train"] = [float(value) for value in graph.samples.tolist()]
        if graph.accuracy is not None:
            table["accuracy"] = [_finite(value) for value in graph.accuracy.double().tolist()]
    known: dict[str, Column] = {"client": table["client"], "block": [float(block) for block in blocks.tolist()]}
    if components is not None:
        known["component"] = list(components)
    table = {**known, **table}
    return Clients({name: values for name, values in table.items() if any(v not in (None, "") for v in values)})


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _value(text: str | None) -> float | str | None:
    if not text:
        return None
    try:
        return _finite(float(text))
    except ValueError:
        return text


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
