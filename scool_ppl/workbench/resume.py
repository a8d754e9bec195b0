"""Going on with a run from what its folder says alone."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from scool_ppl.base.codec import decode
from scool_ppl.base.files import file_sha256
from scool_ppl.data.specs import load_federation
from scool_ppl.errors import InputError
from scool_ppl.runs.folder import MARK, Run
from scool_ppl.runs.journal import check_rounds
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.workbench import Result, Workbench
from scool_ppl.zoo.load import model_names, model_path


@dataclass(frozen=True)
class Request:
    """What a run was asked to do, as run.json says."""

    model: str
    model_sha256: str
    hyperparameters: dict[str, bool | int | float | str | None]
    federation: str
    settings: Settings
    baseline: bool
    versions: dict[str, str]

    @classmethod
    def read(cls, run: Run, device: str | None = None) -> Request:
        """Of a run that `scool fit` began; `device` in place of the one that it was trained on."""
        known = {field.name for field in fields(cls)}
        asked = {name: value for name, value in run.settings.items() if name in known}
        if device is not None and isinstance(asked.get("settings"), dict):
            asked["settings"] = {**asked["settings"], "device": device}
        try:
            request: Request = decode(cls, asked, {}, "the request")
        except InputError as error:
            raise InputError(
                f"'{run.path / MARK}' is not that of a `scool fit`: {error}; a run of EM.fit goes on with "
                "EM.fit(..., resume=True)"
            ) from error
        return request


def resume(
    path: str | os.PathLike[str],
    rounds: int | None = None,
    *,
    data_root: str | Path | None = None,
    download: bool = False,
    progress: bool = True,
) -> Result:
    """Go on with a run of `scool fit` to `rounds` rounds in all, as many as were asked for if None."""
    run = Run.open(path)
    request = Request.read(run)
    file = model_path(request.model)
    if file_sha256(file) != request.model_sha256 and request.model not in model_names():
        raise InputError(
            f"the model file '{file}' is not what it was when '{path}' began (SHA-256 {file_sha256(file)[:12]}, expected "
            f"{request.model_sha256[:12]}); restore it, or begin a new run"
        )
    if rounds is not None:
        request = replace(request, settings=replace(request.settings, rounds=rounds))
    settings = request.settings
    federation = load_federation(request.federation, seed=settings.seed, data_root=data_root, download=download)
    bench = Workbench(federation, settings, progress=progress)
    with run.locked():
        if rounds is not None:
            # All that is refused is refused before the folder says that more rounds were asked for.
            check_rounds(bench.em(request.model, **request.hyperparameters).resume(run), rounds, run)
            run.write_json(MARK, {**run.settings, "settings": asdict(settings)})
        return bench.fit(request.model, request.hyperparameters, run=run, baseline=request.baseline)
