"""SCooL-SBM: clients form blocks, blocks decide who learns from whom (SCooL 4.2, appendix D).

    pi_i ~ Dirichlet(alpha),  z_i ~ Categorical(pi_i),  Y_ij ~ Bernoulli(B[z_i, z_j])
    P(D | theta, Y) = prod_i P(D_i | theta_i) prod_{j != i} P(D_j | theta_i)^{Y_ij}
    theta_i <- theta_i + sum_j wbar_ij (what local training did to theta_j),  wbar = (E_q[Y] + I), rows normalised

Cases 1.2 and 2.3. The E-step's optima are the paper's (18) to (21), B is (24). Defaults are for clients with few images.
"""

import torch

from scool_ppl import CooperationModel, InputError, NaturalGradient
from scool_ppl.infer.priors import SBM
from scool_ppl.look import All, CrossLoss, Near, Reference, Top
from scool_ppl.mix import MixUpdates


def build(
    num_clients: int,
    blocks: int = 8,
    alpha: float = 1.0,
    learn_alpha: bool = True,
    clamp: float = 0.1,
    spectral: bool = True,
    restarts: int = 0,
    n_eff: float = 5.0,
    temperature: float = 1.0,
    temper_prior: bool = False,
    reference: Reference = "midpoint",
    symmetric: bool = True,
    keep: int | None = None,
    after: int = 10,
    near: int | None = None,
    clip: float | None = None,
    weigh: bool = False,
    samples: torch.Tensor | None = None,
) -> CooperationModel:
    """`blocks`: at most this many; too many are harmless. `alpha`: concentration of memberships at the start.
    `learn_alpha`: is alpha learned? `clamp`: B stays in [clamp, 1 - clamp]. `spectral`: start from spectral clusters
    (the authors' code: false). `restarts`: random starts beside them. `n_eff`: images' worth of loss that count (their
    code: 1). `temperature`: divides the evidence. `temper_prior`: and log P(Y | z), too (their code: the logits of w only)?
    `reference`: the loss that cooperating has to beat (their code: none, with which the graph stays empty).
    `symmetric`: average L_ij with L_ji? `keep`: peers that a client looks at after `after` rounds, all if none (paper:
    a tenth). `after`: rounds in which it looks at all (printed). `near`: peers from the first round on, all if none.
    `clip`: most that one sender moves a client beyond its own update. `weigh`: by images n_j, too?
    """
    if weigh and samples is None:
        raise InputError("scool_sbm has weigh=True and no samples; pass federation= or samples= to load_model")
    if near is not None and keep is not None:
        raise InputError(f"scool_sbm has near={near} and keep={keep}, expected one of them; leave keep out")
    temper = temperature if temper_prior else 1.0
    return CooperationModel(
        prior=SBM(
            num_clients, blocks, alpha=alpha, learn_alpha=learn_alpha, clamp=clamp, spectral=spectral, temper=temper
        ),
        likelihood=CrossLoss(n_eff, temperature, reference, symmetric),
        mixing=MixUpdates(clip, samples if weigh else None),
        peers=Near(near) if near is not None else All() if keep is None else Top(keep, after),
        e_step=NaturalGradient(restarts=restarts),
    )
