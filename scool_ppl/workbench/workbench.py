"""What the command line and the programs of inference/ share: fit one model, or compare several on the same clients."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from scool_ppl.base.codec import Row
from scool_ppl.base.describe import listed, shown_html, versions
from scool_ppl.base.files import csv_text, file_sha256
from scool_ppl.data.federation import Federation
from scool_ppl.data.roster import Roster
from scool_ppl.deploy.deployment import LOCAL
from scool_ppl.deploy.gains import gains
from scool_ppl.deploy.measures import measures
from scool_ppl.em.em import EM
from scool_ppl.em.rehearsal import rehearse
from scool_ppl.em.state import EMInfo, EMState, Fit
from scool_ppl.em.transfer import Learned
from scool_ppl.errors import InputError
from scool_ppl.far.ranks import Ranks
from scool_ppl.far.remote import RemoteClients
from scool_ppl.far.sharded import ShardedClients
from scool_ppl.runs.folder import Run
from scool_ppl.runs.loggers import loggers_of
from scool_ppl.runs.rows import against_local, client_rows, number, spread, total_seconds
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import AnyClients, Evaluation
from scool_ppl.train.networks import network_path
from scool_ppl.train.questions import Params
from scool_ppl.workbench.settings import Settings
from scool_ppl.zoo.load import DEFAULT_MODEL, as_typed, model_path

FEW = 1000
"""Clients of whom everything that can be measured is; of more, it would take longer than a round."""


class Result(NamedTuple):
    """A fitted model and its summary; `local` is the evaluation of local-only training, where it was run; `clients` has a
    row a client, as clients.csv.
    """

    name: str
    fit: Fit
    summary: Row
    local: Evaluation | None
    clients: Sequence[Row] = ()

    def __repr__(self) -> str:
        return f"Result({self.name}, {self.fit!r})"

    def _repr_html_(self) -> str | None:
        return shown_html(self.fit)


@dataclass(frozen=True)
class Workbench:
    """A federation, its clients and the settings: fits models on them, local-only training once.

    A roster in place of the federation: the data are elsewhere, and so are the clients, who are given.
    """

    federation: Federation | Roster
    settings: Settings = field(default_factory=Settings)
    progress: bool = True
    ranks: Ranks | None = None
    """The processes that share the clients, where torchrun has begun several."""
    shard: bool = False
    """Do these processes share the clients' networks, too?"""
    elsewhere: RemoteClients | None = None
    """The clients, where they live elsewhere."""
    _made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def data(self) -> Federation:
        """The federation, where the data are here."""
        if isinstance(self.federation, Roster):
            raise InputError(
                f"data of {listed(self.federation.names)} were asked for, which are elsewhere; ask `clients`"
            )
        return self.federation

    @property
    def clients(self) -> AnyClients:
        """Made at first use and kept: every model meets the same ones."""
        if self.elsewhere is not None:
            return self.elsewhere
        if "clients" not in self._made:
            whole = self.settings.clients(self.data)
            self._made["clients"] = self._shared(whole)
        clients: AnyClients = self._made["clients"]
        return clients

    def _shared(self, whole: Clients) -> AnyClients:
        """These clients, shared by processes where there are several."""
        if self.ranks is None and self.shard:
            raise InputError(
                "--shard was given to one process, expected several; begin them by torchrun, or leave it out"
            )
        if self.ranks is None:
            return whole
        return ShardedClients(whole, self.ranks) if self.shard else self.ranks.clients(whole)

    @property
    def local(self) -> Fit:
        """Local-only training of the same clients, initialisation and batches."""
        if "local" not in self._made:
            self._made["local"] = self.em("local").fit(self.settings.rounds, progress=self.progress)
        fit: Fit = self._made["local"]
        return fit

    def em(self, model: str | os.PathLike[str], learned: Learned | None = None, /, **choices: Any) -> EM:
        """A model on these clients, ready to be fitted: it has been rehearsed. `learned`: what its prior begins with."""

        def first(count: int) -> EM:
            some = self.data.select(range(count))
            return self._em(some, self.settings.clients(some), model, choices)

        em = self._em(self.federation, self.clients, model, choices)
        rehearse(em, first if isinstance(self.federation, Federation) else None)
        return em if learned is None else learned.begun(em, lambda: first(self.federation.num_clients - 1))

    def _em(
        self, federation: Federation | Roster, clients: AnyClients, model: str | os.PathLike[str], choices: Row
    ) -> EM:
        built = self.settings.model(model, federation, **choices)
        return EM(built, clients, self.settings.schedule, seed=self.settings.seed)

    def fit(
        self,
        model: str | os.PathLike[str] = DEFAULT_MODEL,
        choices: Row | None = None,
        learned: Learned | None = None,
        *,
        run: str | os.PathLike[str] | Run | None = None,
        overwrite: bool = False,
        baseline: bool = False,
        log: Sequence[str] = (),
        callbacks: Sequence[Callable[[EMState, EMInfo, Row], None]] = (),
    ) -> Result:
        """Fit a model; with `run`, into that folder, with pictures; with `baseline`, against local-only training.

        `learned` is what the model's prior begins with, in a fit without a folder. A Run goes on from its last checkpoint;
        what was asked for must be the same. `log` names the trackers of `runs.loggers` that get every round; they need
        `run`.
        """
        choices = choices or {}
        name = Path(model).stem
        request = {
            "model": os.fspath(model),
            "model_sha256": file_sha256(model_path(model)),
            "hyperparameters": choices,
            "federation": self._spec,
            "settings": asdict(self.settings),
            "baseline": baseline,
            "log": list(log),
            "versions": versions(),
        }
        if (network := network_path(self.settings.network)) is not None:
            request["network_sha256"] = file_sha256(network)
        if log and run is None:
            raise InputError("log was given without a run's folder; pass run= as well")
        if learned is not None and run is not None:
            raise InputError(
                "both learned= and run= were given, expected one of them; workbench.transfer keeps such fits"
            )
        em = self.em(model, learned, **choices)
        resume = isinstance(run, Run)
        place = run.path if isinstance(run, Run) else Path(run or "")
        watching = [*loggers_of(log, place, request), *callbacks]
        folder = run if run is None or isinstance(run, Run) else Run.create(run, request, overwrite=overwrite)
        # Local-only training is the baseline, too; it is not done twice.
        again = baseline and folder is None and os.fspath(model) == "local"
        with nullcontext() if folder is None else folder.locked():
            options: Row = {"run": folder, "resume": resume, "progress": self.progress, "callbacks": watching}
            fit = self.local if again else em.fit(self.settings.rounds, **options)
            alone, local = self._alone(fit, baseline)
            few = self.clients.num_clients <= FEW and isinstance(self.federation, Federation)
            also = measures(self.clients, fit.deployment.ensemble) if few else {}
            summary = {"model": name, "hyperparameters": choices, **self._summary(fit, alone, local)}
            summary["measures"] = {measure: spread(values) for measure, values in also.items()}
            table = client_rows(self.federation, fit, local, also)
            if folder is not None:
                folder.finish(summary, truth=self.federation.truth, clients=csv_text(table))
        return Result(as_typed(name, choices), fit, summary, local, table)

    @property
    def _spec(self) -> str:
        """Whose data they are."""
        if isinstance(self.federation, Federation):
            return self.federation.spec
        return f"the data of {listed(self.federation.names)}"

    def _alone(self, fit: Fit, baseline: bool) -> tuple[Params | None, Evaluation | None]:
        """Networks of local-only training: those of a track beside the model, else of the baseline if asked for."""
        beside = fit.state.beside.get(LOCAL)
        if beside is not None:
            return beside.params, self.clients.evaluate(beside.params)
        return (self.local.state.params, self.local.evaluation) if baseline else (None, None)

    def _promised(self, last: Row) -> Row:
        """What the epsilon of private clients is of, and for which delta."""
        privacy = self.settings.privacy
        if privacy is None or "epsilon" not in last:
            return {}
        return {"delta": privacy.delta, "epsilon_of": privacy.covers}

    def _summary(self, fit: Fit, alone: Params | None, local: Evaluation | None) -> Row:
        """What a fit came to; `accuracy` is that of what the clients deploy."""
        last = {key: value for key, value in fit.history[-1].items() if key != "round"}
        seconds = total_seconds(fit.history)
        if fit.deployment.chosen:
            weights = zip(fit.deployment.candidates, fit.deployment.weights.mean(0).tolist(), strict=True)
            last |= {
                "accuracy": spread(fit.deployed.score),
                "accuracy_mixed": last["accuracy"],
                "task_accuracy": spread(fit.deployed.task_score),
                "relies_on": dict(weights),
            }
            seconds["deploy"] = fit.deploying
        if alone is not None and local is not None:
            beyond = math.nan  # it is found image by image, where the targets are here
            if isinstance(self.federation, Federation):
                beyond = gains(self.clients, fit.deployment.ensemble, alone).harmed()
            last |= {**against_local(fit.deployed.score, local.score), "harmed": number(beyond)}
        return {
            "federation": self._spec,
            "seed": self.settings.seed,
            "rounds": self.settings.rounds,
            **last,
            **self._promised(last),
            "total_seconds": seconds,
            "versions": versions(),
        }
