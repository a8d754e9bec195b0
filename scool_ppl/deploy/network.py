"""What one client deploys as an ordinary module of PyTorch, with what it needs to predict from the user's own inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scool_ppl.base.arrays import float_tensor, long_tensor
from scool_ppl.base.files import file_sha256
from scool_ppl.base.randomness import seeded
from scool_ppl.data.own import channels_first
from scool_ppl.data.preparation import Preparation
from scool_ppl.em.state import Deployment
from scool_ppl.errors import InputError, unknown
from scool_ppl.tasks.base import Task
from scool_ppl.tasks.named import plain, task_of, written
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import AnyClients, Wrapper
from scool_ppl.train.networks import NetworkSpec, network_for, network_path
from scool_ppl.train.questions import Params, Predictor

MakeNetwork = Callable[[], nn.Module]
NEGLIGIBLE = 1e-6
"""Networks of a mixture whose shares come to less than this together are not shipped."""
_AT_ONCE = 1024  # inputs in one forward pass of `predictive`


class Blueprint(NamedTuple):
    """What it takes to build the clients' networks again, beside their parameters."""

    clients: tuple[str, ...]
    input_shape: tuple[int, ...]
    tokens: bool
    network: NetworkSpec | None
    """None where a function of the user's own builds them."""
    task: str | None
    """As far as predictions depend on it; None where it is a class of the user's own."""
    preparation: Preparation | None

    @classmethod
    def of(cls, clients: AnyClients) -> Blueprint:
        """Of clients in this process, or of such inside of others; of clients elsewhere all but the network."""
        federation = clients.federation
        inside = clients
        while isinstance(inside, Wrapper):
            inside = inside.clients
        network = inside.network if isinstance(inside, Clients) else None
        task = plain(federation.task)
        return cls(
            clients=tuple(federation.names),
            input_shape=tuple(federation.inputs.shape[1:]),
            tokens=not federation.inputs.is_floating_point(),
            network=network if isinstance(network, NetworkSpec) else None,
            task=None if task is None else written(task),
            preparation=federation.preparation,
        )

    def place(self, client: str) -> int:
        """The row of a client."""
        if client not in self.clients:
            raise unknown("client", client, self.clients)
        return self.clients.index(client)


class Mixed(nn.Module):
    """Outputs that stand for sum_j w_j p_j, the predictions of several networks."""

    def __init__(self, networks: Iterable[nn.Module], shares: Tensor, task: Task) -> None:
        super().__init__()
        self.networks, self._task = nn.ModuleList(networks), task
        self.register_buffer("shares", shares)

    def forward(self, inputs: Tensor) -> Tensor:
        parts = [self._task.predictive(network(inputs)) for network in self.networks]
        return self._task.from_predictive(_weighted(parts, self.get_buffer("shares")))


class Standardise(nn.Module):
    """(x - mean) / std of each channel or column; of_bytes: only bytes are, other numbers have been already."""

    def __init__(self, mean: Tensor, std: Tensor, of_bytes: bool) -> None:
        super().__init__()
        self.of_bytes = of_bytes
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, inputs: Tensor) -> Tensor:
        mean = self.get_buffer("mean")
        if self.of_bytes and inputs.dtype != torch.uint8:
            return inputs.to(mean.dtype)
        return (inputs.to(mean.dtype) - mean) / self.get_buffer("std")


class ClientNetwork(nn.Module):
    """All that a client predicts with: sum_c w_c p_c(y | x) of its candidates, its preparation of x, the names of y.

    Inputs (B, ...) are as the user's own files have them: bytes of images, numbers of a table before scaling, with a column
    for each of `feature_names`, or else what the federation holds. forward gives probabilities of the classes (B, C) or
    means (B, D) in the units of the targets; `predict` gives labels.
    """

    def __init__(
        self,
        client: str,
        candidates: Mapping[str, tuple[float, nn.Module]],
        task: Task,
        blueprint: Blueprint,
        offsets: Tensor | None,
    ) -> None:
        super().__init__()
        preparation = None if blueprint.preparation is None else blueprint.preparation.of(client)
        self.client, self.task, self.preparation = client, task, preparation
        self.input_shape, self.tokens = blueprint.input_shape, blueprint.tokens
        self.relies_on = {name: weight for name, (weight, _) in candidates.items()}
        self.labels: tuple[str, ...] = () if preparation is None else preparation.labels
        self.candidates = nn.ModuleList(network for _, network in candidates.values())
        self._offset = offsets is not None
        self.register_buffer("weights", torch.tensor(list(self.relies_on.values()), dtype=self.dtype))
        if offsets is not None:
            self.register_buffer("offsets", offsets.to(self.dtype))
        self.prepare = _standardise(preparation, self.input_shape, self.dtype)
        self.eval()

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters."""
        return next(self.parameters()).dtype

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The columns of an input, () where it is no table."""
        return () if self.preparation is None else self.preparation.feature_names

    @property
    def takes_bytes(self) -> bool:
        """Are the inputs images as bytes?"""
        return isinstance(self.prepare, Standardise) and self.prepare.of_bytes

    def forward(self, inputs: Tensor) -> Tensor:
        return self.from_prepared(self.prepare(inputs))

    def from_prepared(self, inputs: Tensor) -> Tensor:
        """The same for inputs as the federation holds them, prepared already."""
        if not self.tokens:
            inputs = inputs.to(self.dtype)
        parts = [self.task.predictive(self._outputs(network, inputs)) for network in self.candidates]
        predicted = _weighted(parts, self.get_buffer("weights"))
        return predicted if self.preparation is None else self.preparation.decode_target(predicted, self.client)

    def _outputs(self, network: nn.Module, inputs: Tensor) -> Tensor:
        outputs: Tensor = network(inputs)
        return outputs + self.get_buffer("offsets") if self._offset else outputs

    def predictive(self, inputs: Any) -> Tensor:
        """Probabilities (B, C) or means (B, D) of an array of inputs, or of a table with their columns, on the CPU.

        A table is a DataFrame, a mapping of columns, or the path of a csv, parquet or npz file.
        """
        if isinstance(inputs, Tensor | np.ndarray | list | tuple):
            return self._in_pieces(self.__call__, self._rows(inputs))
        if self.preparation is None or not self.preparation.columns:
            found = f"'{inputs}'" if isinstance(inputs, str | os.PathLike) else f"a {type(inputs).__name__}"
            raise InputError(
                f"{found} was given as a table, {self.client} has learned from arrays; give an array of shape "
                f"{self._expected}, or an .npz file that has it as `inputs`"
            )
        return self.predictive_prepared(self.preparation.transform(inputs, self.client))

    def predictive_prepared(self, inputs: Tensor) -> Tensor:
        """The same of inputs as the federation holds them."""
        return self._in_pieces(self.from_prepared, inputs)

    @torch.no_grad()
    def _in_pieces(self, run: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        device = next(self.parameters()).device
        return torch.cat([run(part.to(device)).cpu() for part in rows.split(_AT_ONCE)])

    @property
    def _expected(self) -> str:
        return f"(N, {', '.join(map(str, self.input_shape))})"

    def predict(self, inputs: Any) -> np.ndarray[Any, Any]:
        """Labels (B,), by name where they have names, else numbers; means (B,) or (B, D); what else the task predicts."""
        predicted = self.predictive(inputs)
        if not self.task.num_classes:
            return (predicted.squeeze(-1) if predicted.shape[-1] == 1 else predicted).numpy()
        chosen = predicted.argmax(-1).numpy()
        return np.array(self.labels)[chosen] if self.labels else chosen

    def _rows(self, inputs: Any) -> Tensor:
        """An array of inputs as a tensor (B, ...) of this shape."""
        what = f"the inputs of {self.client}"
        if self.takes_bytes and str(getattr(inputs, "dtype", "")).removeprefix("torch.") == "uint8":
            rows = channels_first(torch.as_tensor(inputs))
        else:
            rows = (long_tensor if self.tokens else float_tensor)(inputs, what)
        if rows.ndim > 2 and len(self.input_shape) == 1:
            rows = rows.flatten(1)
        if tuple(rows.shape[1:]) != self.input_shape or len(rows) == 0:
            raise InputError(
                f"{what} have shape {tuple(rows.shape)}, expected {self._expected} with at least one row, as the run's "
                "federation has them"
            )
        return rows


def client_network(
    deployment: Deployment,
    blueprint: Blueprint,
    client: str,
    *,
    network: MakeNetwork | None = None,
    task: Task | None = None,
) -> ClientNetwork:
    """What this client deploys, of its candidates those on which it relies.

    network, task: what the blueprint does not have, because functions or classes of the user's own were used.
    """
    place, ensemble = blueprint.place(client), deployment.ensemble
    make, task = _maker(blueprint, network), _task(blueprint, task)
    weights = deployment.weights[place].tolist()
    candidates = {
        name: (weight, _candidate(predictor, place, make, task))
        for name, weight, predictor in zip(deployment.candidates, weights, ensemble.predictors, strict=True)
        if weight > 0
    }
    offsets = None if ensemble.offsets is None else ensemble.offsets[place]
    return ClientNetwork(client, candidates, task, blueprint, offsets)


def _candidate(predictor: Predictor, place: int, make: MakeNetwork, task: Task) -> nn.Module:
    """The network of a client, or the mixture that it predicts with."""
    networks, mixture = predictor
    if mixture is None:
        return _loaded(make, networks, place)
    weights, peers = mixture
    share = weights[place].where(peers.mask[place], 0).double()
    senders = peers.columns().expand_as(weights)[place]
    if float(share.sum()) <= 0:
        return _loaded(make, networks, place)
    share, order = (share / share.sum()).sort()
    kept = share.cumsum(0) > NEGLIGIBLE
    each = [_loaded(make, networks, int(sender)) for sender in senders[order[kept]]]
    return Mixed(each, share[kept].to(next(each[0].parameters()).dtype), task)


def _loaded(make: MakeNetwork, networks: Params, place: int) -> nn.Module:
    """A fresh network with the parameters of a row."""
    with seeded(0, torch.device("cpu")):  # the seed of `examine`: buffers are those of training
        module = make()
    found = {name: tuple(leaf.shape) for name, leaf in module.named_parameters()}
    expected = {name: tuple(value.shape[1:]) for name, value in networks.items()}
    if found != expected:
        wrong = min(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        raise InputError(
            f"the network has a parameter '{wrong}' of shape {found.get(wrong)}, the run's have {expected.get(wrong)}; "
            "give the function that the clients were made with"
        )
    module.to(next(iter(networks.values())).dtype)
    for name, leaf in module.named_parameters():
        leaf.data = networks[name][place].clone()
    return module


def _maker(blueprint: Blueprint, network: MakeNetwork | None) -> MakeNetwork:
    if network is not None:
        return network
    if blueprint.network is None:
        raise InputError(
            "the run's networks are built by a function of your own, which no folder holds; pass it: network=..."
        )
    spec = blueprint.network  # from a file: checked as what users ask for is
    if (path := network_path(spec.name)) is not None and file_sha256(path) != spec.sha256:
        raise InputError(
            f"the network file '{path}' is not what it was when the run ended (SHA-256 {file_sha256(path)[:12]}, expected "
            f"{str(spec.sha256)[:12]}); restore it, or pass what builds the network: network=..."
        )
    return network_for(spec.input_shape, spec.outputs, spec.name, tokens=blueprint.tokens, **spec.options)


def _task(blueprint: Blueprint, task: Task | None) -> Task:
    if task is not None:
        return task
    if blueprint.task is None:
        raise InputError("the run's task is a class of your own, which no folder holds; pass it: task=...")
    return task_of(blueprint.task)


def _weighted(parts: Iterable[Tensor], shares: Tensor) -> Tensor:
    """sum_c shares_c parts_c"""
    total: Tensor | float = 0.0
    for part, share in zip(parts, shares, strict=True):
        total = total + share * part
    return torch.as_tensor(total)


def _standardise(preparation: Preparation | None, shape: tuple[int, ...], dtype: torch.dtype) -> nn.Module:
    """What the preparation does to arrays: nothing, or arithmetic."""
    if preparation is not None and preparation.columns:
        mean, std = preparation.scale()
        return Standardise(mean.to(dtype), std.to(dtype), of_bytes=False)
    if preparation is None or preparation.scaling is None:
        return nn.Identity()
    scaling, like = preparation.scaling, (-1, *(1,) * (len(shape) - 1))
    mean, std = (torch.tensor(values, dtype=dtype).view(like) for values in (scaling.mean, scaling.std))
    return Standardise(mean, std, scaling.of_bytes)
