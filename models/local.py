"""Local-only training: nobody learns from anybody. The baseline that cooperation has to beat.

Y = 0,  P(D | theta) = prod_i P(D_i | theta_i)              SCooL cases 1.1 and 2.3, a Dirac prior at the empty graph
theta_i <- theta_i after local training
"""

import torch

from scool_ppl import CooperationModel
from scool_ppl.infer.priors import Dirac
from scool_ppl.look import Ignored
from scool_ppl.mix import Alone


def build(num_clients: int) -> CooperationModel:
    """No hyperparameters."""
    return CooperationModel(Dirac(torch.zeros(num_clients, num_clients)), Ignored(), Alone())
