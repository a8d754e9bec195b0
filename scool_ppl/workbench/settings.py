"""How the clients train and for how long: the settings that all models of a comparison share."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from scool_ppl.data.federation import Federation
from scool_ppl.data.roster import Roster
from scool_ppl.deploy.deployment import LOCAL, RULES, rule_named
from scool_ppl.deploy.portfolio import Portfolio, alone
from scool_ppl.em.model import CooperationModel, Schedule
from scool_ppl.errors import InputError, unknown
from scool_ppl.infer.estep.base import EStep
from scool_ppl.infer.estep.modes import ModeSearch
from scool_ppl.infer.estep.natural import NaturalGradient
from scool_ppl.infer.estep.projected import ProjectedGradient
from scool_ppl.infer.estep.svi import SVIStep
from scool_ppl.tasks.weighted import BALANCED, balanced
from scool_ppl.train.clients import Clients
from scool_ppl.train.executors.descent import MakeOptimizer
from scool_ppl.train.networks import NETWORKS, NetworkSpec, network_for
from scool_ppl.train.networks.precision import PRECISIONS
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.zoo.load import load_model

DEVICES = ("cpu", "cuda")


_CLIENTS: dict[str, Any] = {name: known.default for name, known in inspect.signature(Clients).parameters.items()}
_SGD: dict[str, Any] = _CLIENTS["optimizer"].keywords
"""Defaults that Clients define."""

OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], float]] = {
    "sgd": (torch.optim.SGD, _SGD["lr"]),
    "adam": (torch.optim.Adam, 1e-3),
    "adamw": (torch.optim.AdamW, 1e-3),
}
"""Optimisers of the networks by name, and the rate of each where none is given."""

E_STEPS: dict[str, type[NaturalGradient] | type[SVIStep]] = {"natural": NaturalGradient, "svi": SVIStep}


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
    optimizer: str = _option("sgd", f"{' or '.join(OPTIMIZERS)}: how the networks are trained")
    learning_rate: float | None = _option(
        None, f"its rate; default: {', '.join(f'{rate:g} for {name}' for name, (_, rate) in OPTIMIZERS.items())}"
    )
    momentum: float = _option(0.0, "momentum of sgd")
    weight_decay: float = _option(_SGD["weight_decay"], "weight decay of the optimizer")
    class_weights: str | None = _option(
        None, f"{BALANCED}: rare classes count as much in the loss as frequent ones; default: every row counts the same"
    )
    batch_size: int = _option(_CLIENTS["batch_size"], "images per batch")
    network: str = _option(
        "auto",
        f"auto, {', '.join(NETWORKS)}, lora:BODY of transformers, or your own: a .py file with build(input_shape, outputs)",
    )
    width: float | None = _option(None, "width of cnn, resnet9, chars and lora, 1 is the papers'")
    frozen: str | None = _option(
        None, "parameters that are not trained, the same for all clients: names, patterns, e.g. '1.*', body or head"
    )
    private: str | None = _option(
        None,
        "parameters that stay with their client and are never mixed: head (the last layer), body (all others), '3.*'",
    )
    executor: Literal["auto", "stacked", "loop"] = _option(
        _CLIENTS["executor"], "auto, stacked or loop: how clients are run"
    )
    precision: Literal["full", "bf16"] = _option(
        _CLIENTS["precision"], f"{' or '.join(PRECISIONS)}: in bf16 convolutions are quicker, and less exact"
    )
    dp_noise: float | None = _option(None, "private training (DP-SGD): noise of its gradients, in multiples of dp-clip")
    dp_clip: float | None = _option(None, "norm to which the gradient of every image is clipped")
    dp_evidence_noise: float | None = _option(
        None, "noise of the losses that private clients hand out, in multiples of what one image can do to them"
    )
    dp_evidence_clip: float | None = _option(
        None, "nats to which the loss of every image is cut before it is averaged and handed out"
    )
    dp_delta: float = _option(Privacy.delta, "the delta of the (epsilon, delta) that is reported")
    device: str = _option(_CLIENTS["device"], "cpu or cuda")
    e_step: str | None = _option(None, f"{' or '.join(E_STEPS)}; default: the model's own")
    deploy: str | None = _option(
        None, f"{' or '.join(RULES)}: what each client ships, local-only among its candidates; default: the model's own"
    )
    seed: int = _option(0, "of partition, networks, batches and inference")

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise unknown("optimizer", self.optimizer, OPTIMIZERS)
        if self.rounds < 1:
            raise InputError(f"rounds={self.rounds}, expected at least 1")
        if not 0 < self.rate < math.inf:
            raise InputError(f"learning_rate={self.rate}, expected a positive number; leave it out for the default")
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum={self.momentum}, expected a number from 0 to below 1")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay={self.weight_decay}, expected a finite number of at least 0")
        if self.momentum and self.optimizer != "sgd":
            raise InputError(
                f"momentum={self.momentum} was given for {self.optimizer}, expected it for sgd; leave it out"
            )
        if (self.dp_noise is None) != (self.dp_clip is None):
            given, lacking = ("dp_noise", "dp_clip") if self.dp_clip is None else ("dp_clip", "dp_noise")
            raise InputError(
                f"{given}={getattr(self, given)} was given without {lacking}, expected both; --dp-noise 1 --dp-clip 1 is a "
                "beginning"
            )
        _ = self.privacy  # refuses what cannot be
        for name in ("dp_delta", "dp_evidence_noise", "dp_evidence_clip"):
            if self.dp_noise is None and getattr(self, name) != getattr(Settings, name):
                raise InputError(
                    f"{name}={getattr(self, name)} was given for training without noise; add --dp-noise and --dp-clip"
                )
        if self.class_weights not in (None, BALANCED):
            raise unknown("class weights", str(self.class_weights), [BALANCED])
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

    @property
    def rate(self) -> float:
        """The learning rate: as given, or that of the optimiser."""
        return OPTIMIZERS[self.optimizer][1] if self.learning_rate is None else self.learning_rate

    def make_optimizer(self) -> MakeOptimizer:
        """What makes the optimiser of some networks."""
        kind, momentum = OPTIMIZERS[self.optimizer][0], {"momentum": self.momentum} if self.optimizer == "sgd" else {}
        return partial(kind, lr=self.rate, **momentum, weight_decay=self.weight_decay)

    @property
    def privacy(self) -> Privacy | None:
        """How training is private, if it is."""
        if self.dp_noise is None or self.dp_clip is None:
            return None
        return Privacy(
            self.dp_noise,
            self.dp_clip,
            self.dp_delta,
            evidence_noise=self.dp_evidence_noise,
            evidence_clip=self.dp_evidence_clip,
        )

    def network_of(self, roster: Roster) -> NetworkSpec:
        """The network of clients like these."""
        options = {} if self.width is None else {"width": self.width}
        return network_for(roster.input_shape, roster.task.width, self.network, tokens=roster.tokens, **options)

    def clients(self, federation: Federation) -> Clients:
        """Clients with these networks and this optimiser, and with their classes weighed as asked."""
        if self.class_weights is not None:
            federation = replace(federation, task=balanced(federation.task, federation.label_counts().sum(0)))
        return Clients(
            federation,
            self.network_of(federation.roster),
            optimizer=self.make_optimizer(),
            batch_size=self.batch_size,
            executor=self.executor,
            precision=self.precision,
            privacy=self.privacy,
            device=self.device,
            frozen=_listed(self.frozen),
            private=_listed(self.private),
        )

    def model(
        self, name: str | os.PathLike[str], federation: Federation | Roster, **choices: Any
    ) -> CooperationModel | Portfolio:
        """A model for this federation, with the chosen E-step, and the chosen rule of deployment: a model that has none
        becomes a portfolio of itself and local-only training.
        """
        rate = self.rate if (self.optimizer, self.momentum) == ("sgd", 0) else 0.0
        model = load_model(name, federation.num_clients, federation=federation, clients_rate=rate, **choices)
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
        reason = own_way(model.e_step)
        if reason is not None:
            raise InputError(
                f"e-step '{self.e_step}' was asked for, {type(model.prior).__name__} {reason}; leave --e-step out"
            )
        return model._replace(e_step=E_STEPS[self.e_step]())


def _listed(names: str | None) -> tuple[str, ...]:
    """The parts of a text between commas."""
    return () if names is None else tuple(part.strip() for part in names.split(",") if part.strip())


def own_way(step: EStep) -> str | None:
    """Why a prior that is inferred by this E-step would come out otherwise by another; None if it would not."""
    if isinstance(step, ModeSearch):
        return "is not linear in its moments and is inferred by ModeSearch"
    if isinstance(step, ProjectedGradient):
        return "has a point mass for its graph, which ProjectedGradient moves by a step a round"
    decay = options_of(step.optimizer).get("weight_decay") if isinstance(step, NaturalGradient) else None
    return f"is learned with weight decay {decay}, which is no part of its program" if decay else None


def options_of(made: object) -> dict[str, Any]:
    """The keyword arguments of a `partial`; of anything else none."""
    return made.keywords if isinstance(made, partial) else {}
