"""Hedge: train alone, in blocks and with everybody, side by side; rely on each as far as held-out images say.

    local       theta_i <- theta_i after its own training                    harms nobody
    blocks      z a partition of the clients, Y_ij = [z_i = z_j] t_j, P(D_i | Y_i) a mixture of networks     see `blocks`
    everybody   theta_i <- sum_j n_j / n theta_j                             FedAvg
    m ~ Dirichlet(3/2),  w_i ~ Dirichlet(reliance m),  c_in ~ Categorical(w_i),  y_in ~ p_c(y | x_in)     stacking

The candidates c of client i are its local network and those of the other tracks, before and after one more round of local
training; y_in are labels of its validation images. It predicts sum_c E[w_ic] p_c(y | x), in which classes that it has never
seen are as unlikely as they were on all clients' validation images. Who gains nothing from others comes to rely on itself,
the sooner the more validation images it has: with few it follows the other clients.
"""

import torch

from scool_ppl import CooperationModel
from scool_ppl.deploy import Portfolio, Stack, alone
from scool_ppl.infer import ModeSearch
from scool_ppl.infer.priors import Dirac, Partition
from scool_ppl.look import BlockMixture, Ignored
from scool_ppl.mix import MixModels, MixUpdates


def build(
    num_clients: int,
    samples: torch.Tensor | None = None,
    alpha: float = 1e-3,
    doubt: float = 3e-7,
    errors: float = 2.0,
    reliance: float = 20.0,
    unseen: bool = True,
) -> Portfolio:
    """The blocks' as in blocks. `reliance`: images' worth of what the other clients rely on. `unseen`: are classes that
    a client has never seen made less likely? Without everybody it is `blocks --deploy stack`, without blocks `fedavg
    --deploy stack`.
    """
    count = torch.ones(num_clients) if samples is None else samples.double()
    partition = Partition(num_clients, alpha=alpha, doubt=doubt)
    shares = Dirac((count / count.sum()).expand(num_clients, -1))
    tracks = {
        "local": alone(num_clients),
        "blocks": CooperationModel(partition, BlockMixture(errors), MixUpdates(), e_step=ModeSearch()),
        "everybody": CooperationModel(shares, Ignored(), MixModels()),
    }
    return Portfolio(tracks, shown="blocks", rule=Stack(reliance, unseen))
