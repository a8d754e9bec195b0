"""What the clients of a run ship, as files: networks in safetensors, and who relies on which of them in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError

from scool_ppl.base.codec import Tensors, decode, encode
from scool_ppl.base.files import read_regular, replacing
from scool_ppl.em.state import Deployment
from scool_ppl.errors import InputError

FOLDER, NETWORKS, CHOICE = "deployed", "networks.safetensors", "deployment.json"


def save(run: Path, deployment: Deployment) -> None:
    """Write RUN/deployed/: the candidates' networks, and deployment.json, which names them."""
    tensors: Tensors = {}
    choice = encode(deployment, tensors, "")
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    with replacing(folder / NETWORKS) as temporary:
        temporary.write_bytes(safetensors.torch.save(tensors))
    with replacing(folder / CHOICE) as temporary:
        temporary.write_text(json.dumps(choice, indent=1) + "\n")


def load(run: Path) -> Deployment:
    """What `save` wrote."""
    folder = run / FOLDER
    try:
        tensors = safetensors.torch.load(read_regular(folder / NETWORKS))
        found: Deployment = decode(Deployment, json.loads(read_regular(folder / CHOICE)), tensors, CHOICE)
    except (OSError, SafetensorError, ValueError, RecursionError, TypeError) as error:
        reason = " ".join((getattr(error, "strerror", None) or str(error)).split())
        raise InputError(
            f"cannot read what '{run}' deploys: {reason}; expected a run of `scool fit` that has ended; finish it by "
            f"`scool resume {run}`"
        ) from error
    candidates, clients = (
        len(found.ensemble.predictors),
        {len(value) for predictor in found.ensemble.predictors for value in predictor.networks.values()},
    )
    if len(found.candidates) != candidates or clients != {len(found.weights)} or found.weights.dim() != 2:
        raise InputError(f"'{folder}' is damaged: it names {len(found.candidates)} candidates and holds {candidates}")
    return found
