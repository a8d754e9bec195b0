"""Attention: clients attend to those whose networks have moved alike."""

from __future__ import annotations

from pathlib import Path

import pyro
import pyro.distributions as dist
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from scool_ppl.base.arguments import positive
from scool_ppl.base.files import replacing
from scool_ppl.base.randomness import key, seeded
from scool_ppl.errors import InputError
from scool_ppl.infer.distributions import OneHot
from scool_ppl.infer.priors.base import GraphPrior
from scool_ppl.look.evidence import Evidence
from scool_ppl.train.contract import AnyClients
from scool_ppl.train.questions import Params


class FilterEncoder(nn.Module):
    """E(u): a two-layer network per layer of the clients' networks, shared by all filters of that layer.

    A filter is what feeds one output of a layer: its weights and its bias. Outputs are concatenated over filters and
    layers and scaled, so that <E(u), E(v)> is the *mean* over filters, however many there are.
    """

    def __init__(self, fan_in: dict[str, int], hidden: int = 10, features: int = 5) -> None:
        super().__init__()
        self.fan_in = dict(fan_in)
        self.layers = nn.ModuleDict(
            {
                layer.replace(".", "/"): nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, features))
                for layer, size in fan_in.items()
            }
        )

    @staticmethod
    def filters(params: Params) -> dict[str, Tensor]:
        """Parameters (K, ...) by layer as (K, filters, fan-in): a weight's rows, each with its bias."""
        found: dict[str, list[Tensor]] = {}
        for name, value in params.items():
            layer = name.rpartition(".")[0] or name
            found.setdefault(layer, []).append(value.flatten(2) if value.dim() > 2 else value.flatten(1).unsqueeze(-1))
        return {layer: torch.cat(parts, -1) for layer, parts in found.items() if len({p.shape[1] for p in parts}) == 1}

    def forward(self, params: Params) -> Tensor:
        dtype = next(self.parameters()).dtype
        outputs = []
        for layer, filters in self.filters(params).items():
            outputs.append(self.layers[layer.replace(".", "/")](filters.to(dtype)).flatten(1))
        encoded = torch.cat(outputs, 1)
        per_filter = next(iter(self.layers.values()))[-1].out_features  # type: ignore[index]
        return encoded / (encoded.shape[1] / int(per_filter)) ** 0.5

    def save(self, path: str | Path) -> None:
        """Write the encoder as safetensors."""
        with replacing(Path(path)) as temporary:
            save_file(self.state_dict(), temporary)

    @classmethod
    def load(cls, path: str | Path) -> FilterEncoder:
        """Read what `save` wrote; which layers it is for is read off its weights."""
        try:
            tensors = load_file(path)
        except (OSError, ValueError, SafetensorError) as error:
            raise InputError(
                f"cannot read an encoder from '{path}': {error}; expected a file that `save` wrote"
            ) from error
        layers = [
            name.removeprefix("layers.").removesuffix(".0.weight") for name in tensors if name.endswith(".0.weight")
        ]
        try:
            first, last = ({layer: tensors[f"layers.{layer}.{n}.weight"].shape for layer in layers} for n in (0, 2))
            sizes = {layer.replace("/", "."): shape[1] for layer, shape in first.items()}
            encoder = cls(sizes, hidden=first[layers[0]][0], features=last[layers[0]][0]).double()
            encoder.load_state_dict(tensors)
        except (LookupError, RuntimeError) as error:
            raise InputError(f"'{path}' holds no encoder; expected a file that `save` wrote") from error
        return encoder


class Attention(GraphPrior):
    """Y_i one-hot ~ Categorical(p_i), p_ij = softmax_j <E(u_i), E(u_j)>, u_i = theta_i^{t+1/2} - theta_i^0 (SCooL 4.3).

    E is a FilterEncoder, learned by raising sum_ij w_ij log p_ij. `scale` multiplies the updates before they are
    encoded: they are small numbers. With `soft` rows are not drawn: p itself stands for E[Y], as a point mass (meta-L2C).
    """

    kind = "rows"
    needs = ("updates",)
    demands = ("all networks",)

    def __init__(
        self, num_clients: int, *, scale: float = 10.0, soft: bool = False, includes_self: bool = False
    ) -> None:
        super().__init__(num_clients)
        if not positive(scale):
            raise InputError(f"Attention has scale={scale}, expected a positive number")
        self.scale, self.soft = scale, soft
        self.includes_self = includes_self
        self.encoder: FilterEncoder | None = None

    def prepare(self, clients: AnyClients, seed: int) -> None:
        """Create the encoder, for the layers of the clients' networks, unless there is one (a saved one, say)."""
        fan_in = {layer: f.shape[-1] for layer, f in FilterEncoder.filters(clients.init(seed)).items()}
        if self.encoder is None:
            with seeded(key(seed, "encoder")):
                self.encoder = FilterEncoder(fan_in)
        if self.encoder.fan_in != fan_in:
            raise InputError(
                f"the encoder is for layers {self.encoder.fan_in}, the clients' networks have {fan_in}; "
                "use the network that it was trained with, or none to train a new one"
            )

    def scores(self, evidence: Evidence) -> Tensor:
        """<E(u_i), E(u_j)> of receivers i and their candidates j, (K, M)."""
        if self.encoder is None:
            raise InputError("the attention prior has no encoder yet; run it in an EM, or call prepare(clients, seed)")
        encoded = self.encoder({name: self.scale * value.cpu() for name, value in evidence.updates.items()})
        return evidence.peers.inner(encoded, encoded)

    def model(self, evidence: Evidence) -> Tensor:
        logits = self.row_logits(self.scores(evidence))
        with self.clients:
            if self.soft:
                graph = dist.Delta(logits.softmax(-1), event_dim=1)
                return pyro.sample("Y", graph, obs=graph.v)
            return pyro.sample("Y", OneHot(logits=logits))
