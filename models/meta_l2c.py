"""meta-L2C: L2C whose mixing weights come from an encoder of the clients' updates (Li et al., 2022).

    w_ij = softmax_j <E(u_i), E(u_j)>,  u_i = theta_i^{t+1/2} - theta_i^0               candidates include i itself
    theta_i <- theta_i^t + sum_j w_ij Delta_j
    E lowers sum_i V_i(theta_i^t + sum_j w_ij Delta_j) by the next round; V as in l2c, whose order is the same

E is the encoder of scool_attention, moved by Adam (anew in every round), rate 0.1 and decay 0.01. (6) has the mean of the
V_i for their sum. Adam does not mind, but next to the mean the decay weighs K times as much, and the encoder fades away
(validation accuracy .37 for .90 on the default federation). Where the steps of a round would raise the loss, their way is
halved until it does not: the paper's single step, kept as it is, mixes at random (.67). After 10 rounds the paper drops the
90 % weakest peers of every client: `keep` is how many stay, by default all. A trained encoder works for
other clients and other data: `em.model.prior.encoder.save(path)` writes it as safetensors, `encoder=path` reads it,
with `frozen=true` to use it as it is.
"""

from functools import partial

import torch

from scool_ppl import CooperationModel, InputError, NaturalGradient
from scool_ppl.infer.priors import Attention, FilterEncoder
from scool_ppl.look import All, MixedValidation, Top
from scool_ppl.mix import MixUpdates


def build(
    num_clients: int,
    learning_rate: float = 0.1,
    decay: float = 0.01,
    steps: int = 5,
    scale: float = 1.0,
    keep: int | None = None,
    after: int = 10,
    encoder: str | None = None,
    frozen: bool = False,
    clip: float | None = None,
) -> CooperationModel:
    """`learning_rate`, `decay`: rate and weight decay of Adam on the encoder (printed). `steps`: of Adam a round. `scale`:
    multiplies the updates before they are encoded. `encoder`: file of a trained one, a new one if none. `frozen`: use it as
    it is. `keep`: peers kept after `after` rounds, all if none (paper: a tenth). `clip` as in scool_sbm, `after` as in l2c.
    """
    if frozen and encoder is None:
        raise InputError("meta_l2c has frozen=True and no encoder, expected the file of a trained one; pass encoder=")
    prior = Attention(num_clients, scale=scale, soft=True, includes_self=True)
    if encoder is not None:
        prior.encoder = FilterEncoder.load(encoder).requires_grad_(not frozen)
    adam = partial(torch.optim.Adam, lr=learning_rate, weight_decay=decay)
    peers = All() if keep is None else Top(keep, after)
    e_step = NaturalGradient(sweeps=1, optimizer=adam, optimizer_steps=steps)
    return CooperationModel(prior, MixedValidation(), MixUpdates(clip), peers, e_step)
