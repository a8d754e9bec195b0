"""What the clients of a run predict with what they have deployed: on their own test images, or on new inputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scool_ppl.base.arrays import float_tensor, long_tensor
from scool_ppl.base.files import write_npz
from scool_ppl.data.reading import read_npz
from scool_ppl.data.specs import load_federation
from scool_ppl.errors import InputError, unknown
from scool_ppl.runs.folder import Run
from scool_ppl.workbench.resume import Request


class Predictions(NamedTuple):
    """Of each client named: what is predicted for each input, nan or -1 where a client has fewer test images than others.

    predictive: (K, n, ...), probabilities of the classes, or means. classes: (K, n), the most probable class by the
    client's own names; None where there are no classes.
    """

    names: tuple[str, ...]
    predictive: Tensor
    classes: Tensor | None

    def save(self, path: str | os.PathLike[str]) -> None:
        """An .npz file with `names`, `predictive` and, if there are any, `classes`."""
        arrays = {"names": np.array(self.names), "predictive": self.predictive.numpy()}
        if self.classes is not None:
            arrays["classes"] = self.classes.numpy()
        try:
            write_npz(Path(path), arrays, compressed=True)
        except OSError as error:
            raise InputError(f"cannot write '{path}': {error.strerror}; choose another --out") from error


def predict(
    path: str | os.PathLike[str],
    inputs: str | os.PathLike[str] | None = None,
    clients: Sequence[str] = (),
    *,
    data_root: str | Path | None = None,
    download: bool = False,
) -> Predictions:
    """What the clients of a run of `scool fit` predict, all or those named: by the ensembles in its folder `deployed`.

    inputs: an .npz file with an array `inputs`, as the federation's own inputs are; None for each client's test images.
    """
    run = Run.open(path)
    request, deployment = Request.read(run, device="cpu"), run.deployment
    settings = replace(request.settings, executor="loop")
    federation = load_federation(request.federation, seed=settings.seed, data_root=data_root, download=download)
    for name in clients:
        if name not in federation.names:
            raise unknown("client", name, federation.names)
    own = settings.clients(federation)
    if inputs is None:
        outputs, mask = own.predict(deployment.ensemble)
    else:
        outputs = own.outputs(deployment.ensemble, _inputs(inputs, federation.inputs))
        mask = torch.ones(outputs.shape[:2], dtype=torch.bool)
    chosen = [place for place, name in enumerate(federation.names) if not clients or name in clients]
    predictive, mask = federation.task.predictive(outputs)[chosen], mask[chosen]
    classes = predictive.argmax(-1).masked_fill(~mask.view(*mask.shape, *(1,) * (predictive.dim() - 3)), -1)
    predictive = predictive.masked_fill(~mask.view(*mask.shape, *(1,) * (predictive.dim() - 2)), torch.nan)
    return Predictions(
        tuple(federation.names[place] for place in chosen), predictive, classes if federation.num_classes else None
    )


def _inputs(path: str | os.PathLike[str], like: Tensor) -> Tensor:
    """The array `inputs` of a file, of the type and shape of the federation's inputs."""
    found = read_npz(Path(path).expanduser(), ("inputs",))["inputs"]
    make = float_tensor if like.is_floating_point() else long_tensor
    made: Tensor = make(found, f"{path}: inputs")
    if made.shape[1:] != like.shape[1:] or len(made) == 0:
        raise InputError(
            f"{path} has inputs of shape {tuple(made.shape)}, expected (N, {', '.join(map(str, like.shape[1:]))}) with at "
            "least one row, as the run's federation has them"
        )
    return made
