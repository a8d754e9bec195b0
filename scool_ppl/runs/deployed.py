"""What the clients of a run ship, as files: networks in safetensors, and JSON: who relies on which, how they are built."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
from safetensors import SafetensorError

from scool_ppl.base.codec import Tensors, decode, encode
from scool_ppl.base.files import file_sha256, read_regular, replacing
from scool_ppl.deploy.blueprint import Blueprint
from scool_ppl.em.state import Deployment
from scool_ppl.errors import InputError
from scool_ppl.runs.tensors import save as save_tensors
from scool_ppl.runs.tensors import sent
from scool_ppl.train.questions import Ensemble, Predictor

FOLDER, NETWORKS, CHOICE = "deployed", "networks.safetensors", "deployment.json"
FILE = f"{FOLDER}/{CHOICE}"
"""Where it is, a run has ended."""


class Shipped(NamedTuple):
    """What deployment.json says."""

    sha256: str
    """Of the networks' file."""
    deployment: Deployment
    blueprint: Blueprint | None = None
    """None in folders that an earlier version wrote."""


def save(run: Path, deployment: Deployment, blueprint: Blueprint | None = None) -> None:
    """Write RUN/deployed/: the candidates' networks, and deployment.json, which says who relies on which of them, and what
    it takes to build them.
    """
    tensors: Tensors = {}
    choice, told = encode(_on_cpu(deployment), tensors, ""), encode(blueprint, tensors, "blueprint")
    if sent(tensors):
        return
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    with replacing(folder / NETWORKS) as temporary:
        save_tensors(temporary, tensors)
        sha256 = file_sha256(temporary)
    content = {
        "sha256": sha256,
        "deployment": choice,
        "blueprint": told,
    }
    with replacing(folder / CHOICE) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n")


def load(run: Path) -> Shipped:
    """What `save` wrote, verified."""
    folder = run / FOLDER
    try:
        networks, content = (read_regular(folder / name) for name in (NETWORKS, CHOICE))
        tensors = safetensors.torch.load(networks)
        shipped: Shipped = decode(Shipped, json.loads(content), tensors, CHOICE)
        if hashlib.sha256(networks).hexdigest() != shipped.sha256:
            raise InputError(f"{NETWORKS} does not have the SHA-256 that {CHOICE} promises")
        _check(shipped)
    except (OSError, SafetensorError, ValueError, RecursionError, TypeError, RuntimeError) as error:
        reason = " ".join((getattr(error, "strerror", None) or str(error)).split())
        raise InputError(
            f"cannot read what '{run}' deploys: {reason}; expected a run that has ended; finish it, for a `scool fit` by "
            f"`scool resume {run}`"
        ) from error
    return shipped


def _on_cpu(deployment: Deployment) -> Deployment:
    """The same for any machine, whatever device it was trained on."""

    def moved(predictor: Predictor) -> Predictor:
        mixture = predictor.mixture
        own = None if mixture is None else (mixture[0].cpu(), mixture[1])
        return Predictor({name: value.cpu() for name, value in predictor.networks.items()}, own)

    predictors, weights, offsets = deployment.ensemble
    offsets = None if offsets is None else offsets.cpu()
    return deployment._replace(ensemble=Ensemble(tuple(map(moved, predictors)), weights.cpu(), offsets))


def _check(shipped: Shipped) -> None:
    """What types cannot say."""
    deployment, blueprint = shipped.deployment, shipped.blueprint
    weights, predictors = deployment.weights, deployment.ensemble.predictors
    offsets = deployment.ensemble.offsets
    if offsets is not None and (offsets.dim() != 2 or len(offsets) != len(weights)):
        raise InputError(f"{CHOICE} has offsets of shape {tuple(offsets.shape)}, expected a row for each client")
    clients = {len(value) for predictor in predictors for value in predictor.networks.values()}
    if (
        weights.dim() != 2
        or min(clients, default=0) < len(weights)  # behind the clients' own there may be others, which are mixed
        or not len(deployment.candidates) == len(predictors) == weights.shape[1]
    ):
        raise InputError(
            f"{CHOICE} names {len(deployment.candidates)} candidates with weights of shape {tuple(weights.shape)}, "
            f"{NETWORKS} holds {len(predictors)} of {sorted(clients)} clients"
        )
    if blueprint is not None and len(blueprint.clients) != len(weights):
        raise InputError(f"{CHOICE} names {len(blueprint.clients)} clients, expected {len(weights)}")
