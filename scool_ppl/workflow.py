"""What the command line and the programs of inference/ share: fit one model, or compare several on the same clients."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from scool_ppl.clients import Clients, Evaluation
from scool_ppl.em import EM, CooperationModel, Fit, Schedule
from scool_ppl.errors import InputError, unknown
from scool_ppl.estep import NaturalGradient, SVIStep
from scool_ppl.federation import Federation
from scool_ppl.identity import file_sha256
from scool_ppl.networks import network_of
from scool_ppl.records import Row, against_local, clients_csv, total_seconds, versions
from scool_ppl.runs import Run
from scool_ppl.zoo import load_model, model_path

DEVICES = ("cpu", "cuda")
E_STEPS: dict[str, type[NaturalGradient] | type[SVIStep]] = {"natural": NaturalGradient, "svi": SVIStep}


@dataclass(frozen=True)
class Settings:
    """How the clients train and for how long; the same for every model of a comparison."""

    rounds: int = 20
    local_epochs: int = 5
    warmup_epochs: int = 40
    local_steps: int | None = None
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 5e-4
    batch_size: int = 10
    network: str = "auto"
    width: float | None = None
    executor: Literal["auto", "stacked", "loop"] = "auto"
    device: str = "cpu"
    e_step: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 1 or not 0 < self.learning_rate < math.inf:
            raise InputError(
                f"rounds={self.rounds}, learning_rate={self.learning_rate}: "
                "expected at least one round and a positive rate"
            )
        if self.e_step is not None and self.e_step not in E_STEPS:
            raise unknown("e-step", self.e_step, E_STEPS)
        if self.device.partition(":")[0] not in DEVICES:
            raise unknown("device", self.device, DEVICES)
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise InputError(f"device '{self.device}' was asked for, this machine has none; use --device cpu")

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.local_epochs, self.warmup_epochs, self.local_steps)

    def clients(self, federation: Federation) -> Clients:
        """Clients with these networks and this optimiser."""
        options = {} if self.width is None else {"width": self.width}
        return Clients(
            federation,
            network_of(federation, self.network, **options),
            optimizer=partial(
                torch.optim.SGD, lr=self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay
            ),
            batch_size=self.batch_size,
            executor=self.executor,
            device=self.device,
        )

    def model(self, name: str | os.PathLike[str], federation: Federation, **choices: Any) -> CooperationModel:
        """A model for this federation, with the chosen E-step."""
        model = load_model(name, federation.num_clients, federation=federation, **choices)
        if self.e_step is None or isinstance(model.e_step, E_STEPS[self.e_step]):
            return model
        return model._replace(e_step=E_STEPS[self.e_step]())


class Result(NamedTuple):
    """A fitted model and its summary; `local` is the evaluation of local-only training, where it was run."""

    name: str
    fit: Fit
    summary: Row
    local: Evaluation | None


@dataclass(frozen=True)
class Workbench:
    """A federation, its clients and the settings: fits models on them, local-only training once."""

    federation: Federation
    settings: Settings = Settings()
    progress: bool = True
    _made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def clients(self) -> Clients:
        """Made at first use and kept: every model meets the same ones."""
        if "clients" not in self._made:
            self._made["clients"] = self.settings.clients(self.federation)
        clients: Clients = self._made["clients"]
        return clients

    @property
    def local(self) -> Fit:
        """Local-only training of the same clients, initialisation and batches."""
        if "local" not in self._made:
            self._made["local"] = self.em("local").fit(self.settings.rounds, progress=self.progress)
        fit: Fit = self._made["local"]
        return fit

    def em(self, model: str | os.PathLike[str], **choices: Any) -> EM:
        """A model on these clients, ready to be fitted."""
        built = self.settings.model(model, self.federation, **choices)
        return EM(built, self.clients, self.settings.schedule, seed=self.settings.seed)

    def fit(
        self,
        model: str | os.PathLike[str] = "scool_sbm",
        choices: Row | None = None,
        *,
        run: str | os.PathLike[str] | Run | None = None,
        overwrite: bool = False,
        baseline: bool = False,
    ) -> Result:
        """Fit a model; with `run`, into that folder, with pictures; with `baseline`, against local-only training.

        A Run goes on from its last checkpoint; what was asked for must be the same.
        """
        choices = choices or {}
        name = Path(model).stem
        request = {
            "model": os.fspath(model),
            "model_sha256": file_sha256(model_path(model)),
            "hyperparameters": choices,
            "federation": self.federation.spec,
            "settings": asdict(self.settings),
            "baseline": baseline,
            "versions": versions(),
        }
        em = self.em(model, **choices)
        resume = isinstance(run, Run)
        folder = run if run is None or isinstance(run, Run) else Run.create(run, request, overwrite=overwrite)
        # Local-only training is the baseline, too; it is not done twice.
        again = baseline and folder is None and os.fspath(model) == "local"
        with nullcontext() if folder is None else folder.locked():
            options: Row = {"run": folder, "resume": resume, "progress": self.progress}
            fit = self.local if again else em.fit(self.settings.rounds, **options)
            local = self.local.evaluation if baseline else None
            summary = {"model": name, "hyperparameters": choices, **self._summary(fit, local)}
            if folder is not None:
                table = clients_csv(self.federation, fit.evaluation, fit.trained, local)
                folder.finish(summary, truth=self.federation.truth, clients=table)
        return Result(" ".join([name, *(f"{key}={value}" for key, value in choices.items())]), fit, summary, local)

    def _summary(self, fit: Fit, local: Evaluation | None) -> Row:
        """What a fit came to."""
        gain = {} if local is None else against_local(fit.evaluation.accuracy, local.accuracy)
        return {
            "federation": self.federation.spec,
            "seed": self.settings.seed,
            "rounds": self.settings.rounds,
            **{key: value for key, value in fit.history[-1].items() if key != "round"},
            "total_seconds": total_seconds(fit.history),
            "versions": versions(),
            **gain,
        }


Choice = tuple[str | os.PathLike[str], Row]
"""A model and the hyperparameters chosen for it."""


def compare(
    models: Sequence[Choice],
    make_federation: Callable[[int], Federation],
    settings: Settings,
    seeds: Sequence[int],
    *,
    progress: bool = True,
) -> list[list[Result]]:
    """Every model on the same clients, initialisation and batches, for each seed: results[seed][model]."""
    names = labels(models)
    results = []
    for seed in seeds:
        bench = Workbench(make_federation(seed), replace(settings, seed=seed), progress=progress)
        for model, choices in models:
            bench.em(model, **choices)  # one that cannot be built is refused before the others are trained
        fitted = (bench.fit(model, choices, baseline=True) for model, choices in models)
        results.append(
            [
                result._replace(name=name, summary={**result.summary, "model": name})
                for result, name in zip(fitted, names, strict=True)
            ]
        )
    return results


def labels(models: Sequence[Choice]) -> list[str]:
    """What each is called in tables and figures: its name, with its hyperparameters where the name comes twice."""
    stems = [Path(model).stem for model, _ in models]
    full = [
        " ".join([stem, *(f"{key}={value}" for key, value in choices.items())])
        for stem, (_, choices) in zip(stems, models, strict=True)
    ]
    if twice := {name for name in full if full.count(name) > 1}:
        raise InputError(f"{' and '.join(sorted(twice))} was given twice, expected models that differ; remove one")
    return [name if stems.count(stem) > 1 else stem for stem, name in zip(stems, full, strict=True)]


def save_comparison(results: Sequence[Sequence[Result]], out: str | os.PathLike[str]) -> list[Row]:
    """Write comparison.json, comparison.md and comparison.png into a new folder; returns the rows of the table."""
    from scool_ppl.charts import save_figure
    from scool_ppl.comparison_figure import draw_comparison
    from scool_ppl.tables import COLUMNS, comparison, markdown

    rows = comparison(results)
    first = results[0][0].summary
    folder = Run.create(out, {"comparison": [row["model"] for row in rows], "federation": first["federation"]})
    runs = [[result.summary for result in one_seed] for one_seed in results]
    folder.write_json("comparison.json", {"table": rows, "runs": runs, "versions": versions()})
    folder.write_text("comparison.md", markdown(rows, list(COLUMNS), len(results)))
    figure = draw_comparison({result.name: (result.fit.graph, result.fit.history) for result in results[0]})
    save_figure(figure, folder.path / "comparison.png")
    return rows
