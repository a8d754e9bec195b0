"""FedAvg: everybody takes the same weighted average of all networks (McMahan et al., 2017).

Y_ij = n_j / sum_l n_l,  P(D | theta) = prod_i P(D_i | theta_i)       a Dirac prior, the evidence is ignored
theta_i <- sum_j Y_ij theta_j

A client who was away comes back with its own network and trains on from there, as with all models here; the paper's would
be sent everybody's.
"""

import torch

from scool_ppl import CooperationModel
from scool_ppl.infer.priors import Dirac
from scool_ppl.look import Ignored
from scool_ppl.mix import MixModels, MixUpdates


def build(num_clients: int, samples: torch.Tensor | None = None, clip: float | None = None) -> CooperationModel:
    """`samples`: training images n_j of each client (K,), supplied by the federation; equal shares without it.
    `clip`: every client averages updates instead, clipped around its own, see MixUpdates; networks then differ.
    """
    count = torch.ones(num_clients) if samples is None else samples.double()
    mixing = MixModels() if clip is None else MixUpdates(clip)
    return CooperationModel(Dirac((count / count.sum()).expand(num_clients, -1)), Ignored(), mixing)
