"""TensorBoard: curves of the rounds and pictures of the graph as event files."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scool_ppl.runs.loggers.base import Logger, Scalars, occupied


class TensorBoard(Logger):
    """An event file in a folder, for `tensorboard --logdir FOLDER`."""

    package = "tensorboard"
    takes_pictures = True

    def __init__(self, folder: str | os.PathLike[str], settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        self.folder = Path(folder)

    @classmethod
    def of_run(cls, folder: Path, settings: Mapping[str, Any]) -> TensorBoard:
        return cls(folder / "tensorboard", settings)

    def open(self, settings: Mapping[str, str], *, goes_on: bool) -> int:
        from torch.utils.tensorboard import SummaryWriter

        last = self._logged()
        if last and not goes_on:
            raise occupied(self.folder, last)
        self._writer = SummaryWriter(str(self.folder))
        if not last:
            rows = [f"| {name} | {value} |" for name, value in settings.items()]
            self._writer.add_text("settings", "\n".join(["| setting | value |", "| --- | --- |", *rows]))
        return last

    def _logged(self) -> int:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        if not self.folder.is_dir():
            return 0
        events = EventAccumulator(str(self.folder), size_guidance={"scalars": 1, "images": 1})
        events.Reload()
        return max((event.step for name in events.Tags()["scalars"] for event in events.Scalars(name)), default=0)

    def write(self, round: int, values: Scalars) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def picture(self, round: int, png: bytes) -> None:
        from matplotlib.image import imread

        self._writer.add_image("cooperation graph", imread(io.BytesIO(png))[..., :3], round, dataformats="HWC")

    def close(self, error: BaseException | None) -> None:
        self._writer.close()
