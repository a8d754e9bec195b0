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
from scool_ppl.train.networks import network_path
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
    network_sha256: str | None = None

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
    if request.model not in model_names():
        _check_file("model", model_path(request.model), request.model_sha256, path)
    if request.network_sha256 is not None and (network := network_path(request.settings.network)) is not None:
        _check_file("network", network, request.network_sha256, path)
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


def _check_file(what: str, file: Path, sha256: str, run: str | os.PathLike[str]) -> None:
    """Raises InputError unless a file of the user's own is what it was when the run began."""
    if (found := file_sha256(file)) != sha256:
        raise InputError(
            f"the {what} file '{file}' is not what it was when '{run}' began (SHA-256 {found[:12]}, expected "
            f"{sha256[:12]}); restore it, or begin a new run"
        )
