"""What the clients of a run predict with what they have deployed: on their own test images, or on new inputs."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from scool_ppl.base.files import replacing, write_npz
from scool_ppl.data.reading import read_npz
from scool_ppl.deploy.network import ClientNetwork
from scool_ppl.errors import InputError
from scool_ppl.runs import checkpoints
from scool_ppl.runs.folder import Run
from scool_ppl.workbench.resume import Request

TABLES = (".csv", ".parquet")


class Predictions(NamedTuple):
    """Of each client named: what is predicted for each input, nan or -1 where a client has fewer test images than others.

    predictive: (K, n, ...), probabilities of the classes, or means. classes: (K, n), the most probable class by the
    client's own names; None where there are no classes. labels: what the classes are called, () where nobody said.
    """

    names: tuple[str, ...]
    predictive: Tensor
    classes: Tensor | None
    labels: tuple[str, ...] = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """An .npz file with `names`, `predictive` and, where there are any, `classes` and `labels`; or a .csv file with a
        line for each client and input: client, row, prediction, and the probability of each class.
        """
        file = Path(path)
        if file.suffix not in (".npz", ".csv"):
            raise InputError(f"--out is '{path}', expected a file that ends in .npz or .csv; choose one of them")
        try:
            if file.suffix == ".csv":
                self._write_csv(file)
            else:
                write_npz(file, self._arrays(), compressed=True)
        except OSError as error:
            raise InputError(f"cannot write '{path}': {error.strerror}; choose another --out") from error

    def _arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        arrays = {"names": np.array(self.names), "predictive": self.predictive.numpy()}
        if self.classes is not None:
            arrays["classes"] = self.classes.numpy()
        if self.labels:
            arrays["labels"] = np.array(self.labels)
        return arrays

    def _write_csv(self, path: Path) -> None:
        if self.predictive.dim() != 3:
            shape = tuple(self.predictive.shape[2:])
            raise InputError(f"a prediction has shape {shape}, expected numbers side by side in a .csv; write an .npz")
        with replacing(path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["client", "row", *self._heads()])
            writer.writerows(self._lines())

    def _heads(self) -> list[str]:
        width = self.predictive.shape[2]
        if self.classes is None:
            return ["prediction"] if width == 1 else [f"prediction {place}" for place in range(width)]
        return ["prediction", *(f"probability of {label}" for label in self.labels or range(width))]

    def _lines(self) -> Iterator[list[Any]]:
        for place, name in enumerate(self.names):
            for row, predicted in enumerate(self.predictive[place]):
                if not predicted.isnan().any():  # one that has fewer test images than others ends here
                    numbers = map("{:.8g}".format, predicted.tolist())
                    yield [name, row, *self._chosen(place, row), *numbers]

    def _chosen(self, place: int, row: int) -> list[Any]:
        """The name or number of the predicted class, if there are classes."""
        if self.classes is None:
            return []
        number = int(self.classes[place, row])
        return [self.labels[number] if self.labels else number]


def predict(
    path: str | os.PathLike[str],
    inputs: str | os.PathLike[str] | None = None,
    clients: Sequence[str] = (),
    *,
    data_root: str | Path | None = None,
    download: bool = False,
) -> Predictions:
    """What the clients of a run predict, all or those named: by the networks in its folder `deployed`.

    inputs: a table, .csv or .parquet, with the columns that the clients' tables have; or an .npz file with an array
    `inputs` as your own files have it: bytes of images, numbers before they are scaled. The folder is all that is needed.
    None: each client's test images, for which the federation of a `scool fit` is loaded.
    """
    run = Run.open(path)
    networks = run.networks(clients)
    if inputs is None:
        found = list(_of_tests(run, networks, data_root, download))
    else:
        given = _read(Path(inputs).expanduser())
        found = [(network, network.predictive(given)) for network in networks]
    task, labels = found[0][0].task, found[0][0].labels
    predictive = pad_sequence([each for _, each in found], batch_first=True, padding_value=torch.nan)
    classes = None
    if task.num_classes:
        classes = predictive.argmax(-1).masked_fill(predictive.isnan().any(-1), -1)
    return Predictions(tuple(network.client for network, _ in found), predictive, classes, labels)


def _of_tests(
    run: Run, networks: Iterator[ClientNetwork], data_root: str | Path | None, download: bool
) -> Iterator[tuple[ClientNetwork, Tensor]]:
    """Predictions of each client for its own test images."""
    bench = Request.read(run, device="cpu").workbench(data_root, download)
    federation, last = bench.data, checkpoints.newest(run.path)
    known = [] if last is None else last.facts.get("data", [])
    if len(known) == 1 and known != bench.clients.facts()["data"]:
        raise InputError(
            f"the data of '{run.path}' are not what it learned from, expected the same files; restore them, or name new "
            "inputs, which are prepared as in training"
        )
    places = {name: place for place, name in enumerate(federation.names)}
    for network in networks:
        rows = federation.inputs[federation.test[places[network.client]]]
        yield network, network.predictive_prepared(rows)


def _read(path: Path) -> Any:
    """A table by its path, or the array `inputs` of an .npz file."""
    if path.suffix in TABLES:
        return path
    return read_npz(path, ("inputs",))["inputs"]
