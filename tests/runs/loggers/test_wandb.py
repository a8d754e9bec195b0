"""What W&B writes offline has the rounds of a run once each, under one identity, with settings and pictures."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scool_ppl.runs.loggers import WandB
from scool_ppl.runs.loggers.base import scalars
from tests.helpers.logged import STOPS, went_on

wandb = pytest.importorskip("wandb")


def pieces(content: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: a header of 7 bytes, then LevelDB's log format in blocks of 32 kB."""
    place, record = 7, b""
    while place + 7 <= len(content):
        left = 2**15 - place % 2**15
        if left < 7:  # the rest of a block is padding
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def records(folder: Path) -> Iterator[Any]:
    """Every record of every offline run below a folder."""
    from wandb.proto import wandb_internal_pb2

    for path in sorted(folder.rglob("*.wandb")):
        for piece in pieces(path.read_bytes()):
            yield wandb_internal_pb2.Record.FromString(piece)


@pytest.mark.parametrize("stop", STOPS)
def test_a_run_that_goes_on_is_logged_once(stop: str, tmp_path: Path) -> None:
    history = went_on(lambda: WandB(tmp_path / "w", {"blocks": 3}, mode="offline"), tmp_path / "run", stop)
    wandb.teardown()  # its service may still be writing
    written = list(records(tmp_path / "w"))
    (identity,) = {record.run.run_id for record in written if record.WhichOneof("record_type") == "run"}
    assert json.loads((tmp_path / "w" / "scool_ppl.json").read_text()) == {"id": identity, "round": 5}
    rows = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in written
        if record.WhichOneof("record_type") == "history"
    ]
    assert [row["_step"] for row in rows] == [1, 2, 3, 4, 5]
    for row, expected in zip(rows, history, strict=True):
        numbers = {name: value for name, value in row.items() if name in scalars(expected) and "seconds" not in name}
        assert numbers == {name: value for name, value in scalars(expected).items() if "seconds" not in name}
    assert [row["_step"] for row in rows if any(name.startswith("cooperation graph") for name in row)] == [1, 2, 5]
    asked = {item.key: item.value_json for record in written for item in record.run.config.update}
    assert json.loads(asked["blocks"]) == "3"
