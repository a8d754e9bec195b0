"""meta-L2C: L2C whose mixing weights come from an encoder of the clients' updates (Li et al., 2022).

    w_ij = softmax_j <E(u_i), E(u_j)>,  u_i = theta_i^{t+1/2} - theta_i^0               candidates include i itself
    E lowers the validation loss of the mixed networks, theta_i^t + sum_j w_ij Delta_j
    theta_i <- theta_i^t + sum_j w_ij Delta_j

E is the encoder of scool_attention, moved by Adam, rate 0.1 and decay 0.01. A trained encoder works for other clients and
other data: `save_encoder(em, path)` writes it as safetensors, `encoder=path` reads it, and with `frozen=true` it is used as
it is.
"""

from functools import partial

import torch
from safetensors.torch import load_file, save_file

from scool_ppl import CooperationModel, InputError, NaturalGradient
from scool_ppl.likelihoods import MixedValidation
from scool_ppl.mixing import MixUpdates
from scool_ppl.peers import All, Top
from scool_ppl.priors import Attention
from scool_ppl.priors.attention import FilterEncoder


def save_encoder(em, path: str) -> None:
    """Write the encoder of a fitted EM."""
    save_file(em.model.prior.encoder.state_dict(), path)


def load_encoder(path: str, frozen: bool) -> FilterEncoder:
    """Read an encoder; the layers it is for are read off its weights."""
    try:
        tensors = load_file(path)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"cannot read an encoder from '{path}': {error}; expected a file of save_encoder") from error
    first = {name: value for name, value in tensors.items() if name.endswith(".0.weight")}
    fan_in = {name[7:-9].replace("/", "."): value.shape[1] for name, value in first.items()}
    encoder = FilterEncoder(fan_in).double()
    encoder.load_state_dict(tensors)
    return encoder.requires_grad_(not frozen)


def build(
    num_clients: int,
    learning_rate: float = 0.1,
    decay: float = 0.01,
    steps: int = 5,
    scale: float = 10.0,
    keep: int | None = None,
    after: int = 10,
    encoder: str | None = None,
    frozen: bool = False,
) -> CooperationModel:
    """`learning_rate`, `decay`, `steps`: Adam on the encoder; `scale` multiplies the updates before they are encoded."""
    prior = Attention(num_clients, scale=scale, soft=True, includes_self=True)
    prior.encoder = None if encoder is None else load_encoder(encoder, frozen)
    adam = partial(torch.optim.Adam, lr=learning_rate, weight_decay=decay)
    peers = All() if keep is None else Top(keep, after)
    e_step = NaturalGradient(sweeps=1, optimizer=adam, optimizer_steps=steps)
    return CooperationModel(prior, MixedValidation(), MixUpdates(), peers, e_step)
