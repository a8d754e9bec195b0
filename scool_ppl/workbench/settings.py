"""How the clients train and for how long: the settings that all models of a comparison share."""

from __future__ import annotations

import inspect
import math
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from scool_ppl.data.federation import Federation
from scool_ppl.deploy.deployment import LOCAL, RULES, rule_named
from scool_ppl.deploy.portfolio import Portfolio, alone
from scool_ppl.em.model import CooperationModel, Schedule
from scool_ppl.errors import InputError, unknown
from scool_ppl.infer.estep.modes import ModeSearch
from scool_ppl.infer.estep.natural import NaturalGradient
from scool_ppl.infer.estep.svi import SVIStep
from scool_ppl.train.clients import Clients
from scool_ppl.train.networks import network_of
from scool_ppl.zoo.load import load_model

DEVICES = ("cpu", "cuda")


E_STEPS: dict[str, type[NaturalGradient] | type[SVIStep]] = {"natural": NaturalGradient, "svi": SVIStep}

_CLIENTS: dict[str, Any] = {name: known.default for name, known in inspect.signature(Clients).parameters.items()}
_SGD: dict[str, Any] = _CLIENTS["optimizer"].keywords
"""Defaults that Clients define."""


def _option(default: Any, help: str) -> Any:
    """A field that the command line offers as an option with this help."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Settings:
    """How the clients train and for how long; the same for every model of a comparison.

    `scool fit` and `scool compare` have an option for each field, see `cli/options.py`.
    """

    rounds: int = _option(20, "communication rounds")
    local_epochs: int = _option(Schedule.local_epochs, "epochs of local training per round")
    warmup_epochs: int = _option(
        Schedule.warmup_epochs, "epochs of the first round, before the graph is first looked at"
    )
    local_steps: int | None = _option(Schedule.local_steps, "batches per round, instead of epochs")
    learning_rate: float = _option(_SGD["lr"], "rate of SGD")
    momentum: float = _option(0.0, "momentum of SGD")
    weight_decay: float = _option(_SGD["weight_decay"], "weight decay of SGD")
    batch_size: int = _option(_CLIENTS["batch_size"], "images per batch")
    network: str = _option("auto", "auto, linear, mlp, cnn, resnet9 or chars")
    width: float | None = _option(None, "width of cnn, resnet9 and chars, 1 is the papers'")
    executor: Literal["auto", "stacked", "loop"] = _option(
        _CLIENTS["executor"], "auto, stacked or loop: how clients are run"
    )
    device: str = _option(_CLIENTS["device"], "cpu or cuda")
    e_step: str | None = _option(None, f"{' or '.join(E_STEPS)}; default: the model's own")
    deploy: str | None = _option(
        None, f"{' or '.join(RULES)}: what each client ships, local-only among its candidates; default: the model's own"
    )
    seed: int = _option(0, "of partition, networks, batches and inference")

    def __post_init__(self) -> None:
        if self.rounds < 1 or not 0 < self.learning_rate < math.inf:
            raise InputError(
                f"rounds={self.rounds}, learning_rate={self.learning_rate}: "
                "expected at least one round and a positive rate"
            )
        if self.e_step is not None and self.e_step not in E_STEPS:
            raise unknown("e-step", self.e_step, E_STEPS)
        if self.deploy is not None and self.deploy not in RULES:
            raise unknown("deploy", self.deploy, RULES)
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

    def model(
        self, name: str | os.PathLike[str], federation: Federation, **choices: Any
    ) -> CooperationModel | Portfolio:
        """A model for this federation, with the chosen E-step, and the chosen rule of deployment: a model that has none
        becomes a portfolio of itself and local-only training.
        """
        model = load_model(name, federation.num_clients, federation=federation, **choices)
        if self.deploy is not None and isinstance(model, CooperationModel) and os.fspath(name) != LOCAL:
            shown = Path(name).stem if Path(name).stem != LOCAL else "model"
            model = Portfolio({LOCAL: alone(federation.num_clients), shown: model}, shown)
        if isinstance(model, CooperationModel):
            return self._inferred(model)
        rule = model.rule if self.deploy is None else rule_named(self.deploy, model.rule)
        return model.with_each(self._inferred)._replace(rule=rule)

    def _inferred(self, model: CooperationModel) -> CooperationModel:
        if self.e_step is None or isinstance(model.e_step, E_STEPS[self.e_step]):
            return model
        if isinstance(model.e_step, ModeSearch):
            raise InputError(
                f"e-step '{self.e_step}' was asked for, {type(model.prior).__name__} is not linear in its moments and is "
                "inferred by ModeSearch; leave --e-step out"
            )
        return model._replace(e_step=E_STEPS[self.e_step]())
