"""Mixing rules for components: seats without data, whose networks are trained by the clients who use them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.stacks import per_client
from scool_ppl.mix.after import MixModels
from scool_ppl.mix.base import Mixing, Terms, check_samples, of_these
from scool_ppl.train.contract import Trained
from scool_ppl.train.questions import Params
from scool_ppl.train.round_start import RoundStart

ALONE = 1 - 1e-9
"""Who gives components this much weight uses nothing else."""


@dataclass(frozen=True)
class ServeComponents(Mixing):
    """Clients train what they are served, and a component is the mean of what its users have made of it (IFCA).

        theta_i^t = sum_c w_ic theta_c^t,  theta_c^{t+1} = sum_i n_i w_ic theta_i^{t+1/2} / sum_i n_i w_ic

    w is the graph of the last look: of one-hot rows a client is served a copy. A component that nobody uses stays as it is.
    samples: n_i (K,), None counts all clients alike.
    """

    samples: Tensor | None = None

    def __post_init__(self) -> None:
        check_samples(self, self.samples)

    def during(self, start: RoundStart) -> Terms:
        """Training begins at the components as they are now, also of a client who was away when they last changed."""
        if start.graph is None:
            return Terms()
        shares = _shares(self, *start.graph)
        served = shares.sum(1) > ALONE
        begin = {
            name: torch.where(per_client(served, value), _mean(shares, start.components[name]), value)
            for name, value in start.params.items()
        }
        return Terms(begin=begin)

    def components(self, start: RoundStart, trained: Trained) -> Params:
        if start.graph is None:
            return start.components
        use = _shares(self, *start.graph) * _counts(self.samples, start)[:, None] * trained.moved[:, None]
        total = use.sum(0)
        share = (use / total.clamp(min=1e-30)).T
        return {
            name: torch.where(per_client(total > 0, value), _mean(share, trained.params[name]), value)
            for name, value in start.components.items()
        }

    def __call__(self, before: Params, trained: Params, weights: Tensor, peers: Peers) -> Params:
        return MixModels()(before, trained, weights, peers)


@dataclass(frozen=True)
class CopyComponents(Mixing):
    """Every client trains a copy of every component, on which an image counts as far as it comes from there (FedEM).

        theta_ic from theta_c^t by training on D_i, r_inc times the loss of image n;  theta_c^{t+1} = sum_i n_i theta_ic / n

    r: E_q of the one-hot site `source` (n, K, M) at the last look. Clients predict with the mixture
    sum_c w_ic p(y | x, theta_c); a client's own network is a copy of the component with the largest w_ic, which it trains
    first. Copies of the others begin without optimiser state. samples: n_i (K,), None counts all clients alike.
    """

    source: str = "source"
    demands = ("mixtures", "several networks")
    samples: Tensor | None = None

    def __post_init__(self) -> None:
        check_samples(self, self.samples)

    def predictors(self, weights: Tensor, peers: Peers) -> tuple[Tensor, Peers] | None:
        return weights, peers

    def during(self, start: RoundStart) -> Terms:
        if start.graph is None:
            return Terms()
        first = _ranked(_shares(self, *start.graph))[:, 0]
        return Terms(begin=_copies(start.components, first), importance=self._importance(start, first))

    def components(self, start: RoundStart, trained: Trained) -> Params:
        """The means of the copies, of which all but the first are trained here."""
        if start.graph is None:
            return start.components
        ranked, counts = _ranked(_shares(self, *start.graph)), _counts(self.samples, start)
        total = {name: torch.zeros_like(value) for name, value in start.components.items()}
        for rank, chosen in enumerate(ranked.T):
            if rank > 0:
                copies, importance = _copies(start.components, chosen), self._importance(start, chosen)
                trained = start.train(copies, importance=importance)
            for name, value in trained.params.items():
                weight = per_client(counts / counts.sum(), value).to(value)
                total[name].index_add_(0, chosen.to(value.device), weight * value)
        return total

    def _importance(self, start: RoundStart, chosen: Tensor) -> Tensor:
        """r (K, n) of one component for each client, (K,)."""
        column = start.moments[self.source].shape[-1] - start.num_components + chosen
        source = start.moments[self.source].transpose(0, 1)
        return source.gather(2, column[:, None, None].expand(*source.shape[:2], 1)).squeeze(2)

    def __call__(self, before: Params, trained: Params, weights: Tensor, peers: Peers) -> Params:
        first = peers.num_clients + _ranked(peers.shares(weights))[:, 0]
        return _copies(trained, first)


def _shares(mixing: Mixing, weights: Tensor, peers: Peers) -> Tensor:
    """(K, G): how much each client uses each component, in a graph that has some."""
    if not peers.components:
        raise InputError(
            f"{type(mixing).__name__} is for components, the model has none; say how many, components= of the model"
        )
    return peers.shares(weights)


def _ranked(shares: Tensor) -> Tensor:
    """The components (K, G) of each client, the one that it relies on most first."""
    return shares.argsort(dim=1, descending=True, stable=True)


def _copies(networks: Params, chosen: Tensor) -> Params:
    """Networks (G, ...) -> (K, ...), for each client the one that is chosen (K,)."""
    return {name: value[chosen.to(value.device)] for name, value in networks.items()}


def _counts(samples: Tensor | None, start: RoundStart) -> Tensor:
    """n_i (K,), 0 of the absent."""
    everybody = torch.ones(start.num_clients, dtype=torch.float64)
    counts = everybody if samples is None else of_these(samples, start.num_clients).double()
    return counts * start.present


def _mean(shares: Tensor, networks: Tensor) -> Tensor:
    """sum_c shares_ic networks_c."""
    flat = networks.flatten(1)
    return (shares.to(flat) @ flat).view(len(shares), *networks.shape[1:])
