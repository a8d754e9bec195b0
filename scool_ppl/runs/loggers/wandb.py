"""Weights & Biases: a fit as a run of a project."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scool_ppl.base.files import replacing
from scool_ppl.runs.loggers.base import Logger, Scalars


class WandB(Logger):
    """A run of Weights & Biases; `folder` keeps its identity, so that a run that goes on adds to it.

    `options` are those of wandb.init: project, entity, mode, ...; WANDB_MODE=offline needs no account.
    """

    package = "wandb"
    takes_pictures = True

    def __init__(
        self, folder: str | os.PathLike[str], settings: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(settings)
        self.folder, self.options = Path(folder), options
        self._note = self.folder / "scool_ppl.json"

    @classmethod
    def of_run(cls, folder: Path, settings: Mapping[str, Any]) -> WandB:
        return cls(folder / "wandb", settings, name=folder.name)

    def errors(self) -> tuple[type[Exception], ...]:
        import wandb

        return (OSError, wandb.Error)

    def open(self, settings: Mapping[str, str], *, goes_on: bool) -> int:
        import wandb

        self.folder.mkdir(parents=True, exist_ok=True)
        known = json.loads(self._note.read_text()) if goes_on and self._note.is_file() else {}
        given = {"project": os.environ.get("WANDB_PROJECT", "scool_ppl"), **self.options}
        quiet = wandb.Settings(console="off", silent=True)
        self._run = wandb.init(
            dir=self.folder, id=known.get("id"), resume="allow", config=dict(settings), settings=quiet, **given
        )
        return int(known.get("round", 0))

    def write(self, round: int, values: Scalars) -> None:
        self._run.log(values, step=round)
        with replacing(self._note) as temporary:
            temporary.write_text(json.dumps({"id": self._run.id, "round": round}) + "\n")

    def picture(self, round: int, png: bytes) -> None:
        import wandb
        from PIL import Image

        self._run.log({"cooperation graph": wandb.Image(Image.open(io.BytesIO(png)))}, step=round)

    def close(self, error: BaseException | None) -> None:
        self._run.finish(exit_code=0 if error is None else 1)
