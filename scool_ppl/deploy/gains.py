"""Gains: what a client has from the others, and whether that is more than chance."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scool_ppl.deploy.measures import targets_of
from scool_ppl.train.contract import AnyClients
from scool_ppl.train.questions import Ensemble, Params


class Gains(NamedTuple):
    """Of each client (K,), nan without images: the mean gain in score over local-only training, and its standard error,
    nan where it is not known.
    """

    gain: Tensor
    error: Tensor

    def harmed(self, errors: float = 2.0) -> float:
        """Share of clients who are worse off by more than so many standard errors, 2.5 % by chance alone; nan of none."""
        known = self.gain.isfinite()
        beyond = self.gain < -errors * self.error.nan_to_num(torch.inf) - 1e-12
        return float(beyond[known].double().mean())


def gains(clients: AnyClients, deployed: Ensemble, local: Params, split: str = "test") -> Gains:
    """d_in = score of what is deployed - score of the local network, both on client i's n-th image of a split.

    gain_i = mean_n d_in,    error_i^2 = var_n d_in / n_i
    """
    (own, mask), (alone, _) = clients.predict(deployed, split), clients.predict(local, split)
    task, targets = clients.federation.task, targets_of(clients.federation, split)
    difference = (task.scores(own, targets).double() - task.scores(alone, targets).double()).where(mask, 0)
    counts = mask.sum(1).double()
    gain = difference.sum(1) / counts
    variance = ((difference - gain[:, None]).square().where(mask, 0)).sum(1) / (counts - 1)
    return Gains(gain, (variance / counts).sqrt())
