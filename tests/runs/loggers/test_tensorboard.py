"""TensorBoard's own reader finds the rounds of a run once each, its settings, and the graph as a picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from scool_ppl.errors import InputError
from scool_ppl.runs.loggers import TensorBoard
from scool_ppl.runs.loggers.base import scalars
from tests.helpers.logged import STOPS, went_on
from tests.helpers.runs import driver

reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


@pytest.mark.parametrize("stop", STOPS)
def test_a_run_that_goes_on_is_logged_once(stop: str, tmp_path: Path) -> None:
    history = went_on(lambda: TensorBoard(tmp_path / "events", {"blocks": 3}), tmp_path / "run", stop)
    events = reader.EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(scalars(history[0]))
    for name in ("loss", "elbo", "accuracy/mean"):
        found = {event.step: event.value for event in events.Scalars(name)}
        assert found == pytest.approx({row["round"]: scalars(row)[name] for row in history}, rel=1e-6), "float32"
        assert len(events.Scalars(name)) == 5
    assert [event.step for event in events.Images("cooperation graph")] == [1, 2, 5]
    assert events.Images("cooperation graph")[0].encoded_image_string.startswith(b"\x89PNG")
    (text,) = events.Tensors("settings/text_summary")
    assert "| blocks | 3 |" in text.tensor_proto.string_val[0].decode()


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    driver().fit(1, progress=False, callbacks=[TensorBoard(tmp_path)])
    with pytest.raises(InputError, match="log of 1 rounds already"):
        driver().fit(1, progress=False, callbacks=[TensorBoard(tmp_path)])
