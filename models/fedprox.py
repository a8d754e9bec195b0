"""FedProx: FedAvg whose clients stay near the network that they were sent (Li et al., 2020).

Y_ij = n_j / sum_l n_l,  P(D | theta) = prod_i P(D_i | theta_i)       a Dirac prior, the evidence is ignored
from theta^t on  theta_i <- theta_i - eta (grad L_i + mu (theta_i - theta^t)),  then  theta^{t+1} = sum_j Y_ij theta_j

A client who was away comes back with its own network, as with all models here.
"""

import torch

from scool_ppl import CooperationModel
from scool_ppl.infer.priors import Dirac
from scool_ppl.look import Ignored
from scool_ppl.mix import MixModels


def build(num_clients: int, mu: float = 0.1, samples: torch.Tensor | None = None) -> CooperationModel:
    """`mu`: strength of the pull, the paper tries .001 to 1; 0 is FedAvg. `samples`: training images n_j of each client
    (K,), from the federation.
    """
    count = torch.ones(num_clients) if samples is None else samples.double()
    return CooperationModel(Dirac((count / count.sum()).expand(num_clients, -1)), Ignored(), MixModels(pull=mu))
