"""Opening a run in Python, and going on with it, from what its folder says alone."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import NamedTuple

from scool_ppl.base.codec import decode
from scool_ppl.base.files import file_sha256
from scool_ppl.data.specs import load_federation
from scool_ppl.em.em import EM
from scool_ppl.em.state import EMState
from scool_ppl.errors import InputError
from scool_ppl.far.ranks import Ranks
from scool_ppl.runs.folder import MARK, Run
from scool_ppl.runs.journal import check_rounds
from scool_ppl.train.clients import Clients
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
    log: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, run: Run, device: str | None = None) -> Request:
        """Of a run that `scool fit` began; `device` in place of the one that it was trained on."""
        run.check_single()
        known = {one.name for one in fields(cls)}
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

    def check_files(self, run: Run) -> None:
        """Raises InputError unless the user's own files, of the model and the network, are what they were."""
        if self.model not in model_names():
            _check_file("model", model_path(self.model), self.model_sha256, run.path)
        if self.network_sha256 is not None and (network := network_path(self.settings.network)) is not None:
            _check_file("network", network, self.network_sha256, run.path)

    def workbench(
        self,
        data_root: str | Path | None,
        download: bool,
        progress: bool = True,
        ranks: Ranks | None = None,
        shard: bool = False,
    ) -> Workbench:
        """The federation and the settings that were asked for."""
        federation = load_federation(self.federation, seed=self.settings.seed, data_root=data_root, download=download)
        return Workbench(federation, self.settings, progress=progress, ranks=ranks, shard=shard)


class Opened(NamedTuple):
    """A run in Python: its driver, its clients, and the state at its last checkpoint."""

    em: EM
    clients: Clients
    state: EMState


def open_run(
    path: str | os.PathLike[str],
    *,
    device: str | None = None,
    data_root: str | Path | None = None,
    download: bool = False,
) -> Opened:
    """A run of `scool fit` as its folder describes it: model, federation, networks, optimiser; the data must be there.

    em.fit(rounds, run=path, resume=True) goes on with it. device: another one than that of the training.
    """
    run = Run.open(path)
    request = Request.read(run, device)
    request.check_files(run)
    bench = request.workbench(data_root, download)
    em = bench.em(request.model, **request.hyperparameters)
    clients = bench.clients
    assert isinstance(clients, Clients)  # there is one process
    return Opened(em, clients, em.resume(run))


def resume(
    path: str | os.PathLike[str],
    rounds: int | None = None,
    *,
    data_root: str | Path | None = None,
    download: bool = False,
    progress: bool = True,
    ranks: Ranks | None = None,
    shard: bool = False,
) -> Result:
    """Go on with a run of `scool fit` to `rounds` rounds in all, as many as were asked for if None.

    ranks: the processes that share the clients; each has the run in a folder of its own, see `Ranks.folder`.
    shard: do they share the networks, too?
    """
    run = Run.open(path)
    request = Request.read(run)
    request.check_files(run)
    if rounds is not None:
        request = replace(request, settings=replace(request.settings, rounds=rounds))
    bench = request.workbench(data_root, download, progress, ranks, shard)
    with run.locked():
        if rounds is not None:
            # All that is refused is refused before the folder says that more rounds were asked for.
            check_rounds(bench.em(request.model, **request.hyperparameters).resume(run), rounds, run)
            run.write_json(MARK, {**run.settings, "settings": asdict(request.settings)})
        log = request.log if ranks is None or ranks.leads else ()
        return bench.fit(request.model, request.hyperparameters, run=run, baseline=request.baseline, log=log)


def _check_file(what: str, file: Path, sha256: str, run: Path) -> None:
    """Raises InputError unless a file of the user's own is what it was when the run began."""
    if (found := file_sha256(file)) != sha256:
        raise InputError(
            f"the {what} file '{file}' is not what it was when '{run}' began (SHA-256 {found[:12]}, expected "
            f"{sha256[:12]}); restore it, or begin a new run"
        )
