"""SCooL-attention: clients attend to those whose networks have moved alike (SCooL 4.3, appendix E).

    u_i = theta_i^{t+1/2} - theta_i^0,  p_ij = softmax_j <E(u_i), E(u_j)>,  Y_i one-hot ~ Categorical(p_i)
    P(D | theta, Y) = prod_i P(D_i | theta_i) prod_{j != i} P(D_j | theta_i)^{Y_ij}
    theta_i <- theta_i + sum_j wbar_ij (what local training did to theta_j),  wbar = (E_q[Y] + I), rows normalised

Cases 1.2 and 2.2. w_i = softmax_j(log_lik_ij + log p_ij), the paper's (29) without its misprint; E, a two-layer encoder
(10, 5) per layer of the networks shared by its filters, follows the gradient of sum_ij w_ij log p_ij, (31), by a step of
Adam (anew in every round), rate 0.1, decay 0.01, halved until the bound does not fall: as it is it would fall in 19 of 20
rounds (validation accuracy .810 on the default federation; halved .817, within a standard deviation). The term
- sum_ij w_ij grad log p_ij of (30) is left out: one such step a round changes nothing (.815), one at each local step
diverges. The authors' code uses the mean loss as it is
(n_eff=1, reference=none, symmetric=false) and drops 90 % of the peers after 10 rounds (keep=...); rows are a softmax,
so the reference cancels unless it differs by j.
"""

from functools import partial

import torch

from scool_ppl import CooperationModel, NaturalGradient
from scool_ppl.infer.priors import Attention
from scool_ppl.look import All, CrossLoss, Reference, Top
from scool_ppl.mix import MixUpdates


def build(
    num_clients: int,
    scale: float = 10.0,
    learning_rate: float = 0.1,
    decay: float = 0.01,
    n_eff: float = 5.0,
    temperature: float = 1.0,
    reference: Reference = "midpoint",
    symmetric: bool = True,
    keep: int | None = None,
    after: int = 10,
    clip: float | None = None,
) -> CooperationModel:
    """`scale`: multiplies the updates before they are encoded. `learning_rate`, `decay`: rate and weight decay of Adam
    on the encoder (printed). The others as in scool_sbm.
    """
    return CooperationModel(
        prior=Attention(num_clients, scale=scale),
        likelihood=CrossLoss(n_eff, temperature, reference, symmetric),
        mixing=MixUpdates(clip),
        peers=All() if keep is None else Top(keep, after),
        e_step=NaturalGradient(optimizer=partial(torch.optim.Adam, lr=learning_rate, weight_decay=decay)),
    )
