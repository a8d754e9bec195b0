"""Ditto: a personal network for each client, pulled towards a global one (Li et al., 2021).

    Y_ij = n_j / sum_l n_l for the global network g, which nobody's data see:  g <- FedAvg of g trained by all clients
    theta_i <- theta_i - eta (grad L_i + strength (theta_i - g)) at every local step,  strength = lambda of the paper, 1

A Dirac prior, cases 1.1 and 2.1, with one node more than there are clients. Each round trains g on every client, too, so it
costs twice FedAvg's computation and the same traffic.
"""

import torch

from scool_ppl import CooperationModel, InputError
from scool_ppl.infer.priors import Dirac
from scool_ppl.look import Ignored
from scool_ppl.mix import Mixing, Terms
from scool_ppl.train import Pull, Remembered, RoundStart


class PullToGlobal(Mixing):
    """Trains the global network, which it remembers, by FedAvg and pulls every client towards it."""

    def __init__(self, strength: float, share: torch.Tensor) -> None:
        if strength < 0:
            raise InputError(f"strength is {strength}, expected at least 0")
        self.strength, self.share = strength, share

    def during(self, start: RoundStart) -> Terms:
        """g by one round of FedAvg, and the pull towards the g that the round began with."""
        size = start.num_clients
        everywhere = {}
        for name, value in start.params.items():
            known = start.recall(f"global/{name}")
            everywhere[name] = (value[0] if known is None else known).expand_as(value).contiguous()
        trained = start.train(everywhere)
        share = self.share * start.present
        share = share / share.sum()
        mean = {n: torch.einsum("k,k...->...", share.to(value), value) for n, value in trained.params.items()}
        first = next(iter(everywhere.values()))
        pull = Pull(everywhere, first.new_full((size,), self.strength))
        return Terms(pull, memory={f"global/{name}": Remembered(value, ()) for name, value in mean.items()})


def build(num_clients: int, strength: float = 1.0, samples: torch.Tensor | None = None) -> CooperationModel:
    """`strength`: of the pull, lambda of the paper (printed). `samples`: training images of each client (K,), from the
    federation.
    """
    count = torch.ones(num_clients) if samples is None else samples.double()
    share = count / count.sum()
    return CooperationModel(Dirac(share.expand(num_clients, -1)), Ignored(), PullToGlobal(strength, share))
