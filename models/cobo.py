"""CoBo: cooperate with those whose gradients point the same way half way between you (Hashemi et al., 2024).

    Y_ij ~ Uniform[0, 1], a factor exp(Y_ij a_ij),  a_ij = <grad f_i(m_ij), grad f_j(m_ij)>,  m_ij = (theta_i + theta_j) / 2
    w <- clip(w + gamma a, 0, 1), from w = 1, symmetric                  q(Y) is a point mass, one projected step a round
    theta_i <- theta_i - eta (grad L_i + rho sum_j w_ij (theta_i - theta_j)) at every local step

With `domain=simplex` rows stay on the simplex, the paper's variant for language models. A round is some epochs long, in
which w stays and all theta move together; the paper infers w before each step (--local-steps 1 --warmup-epochs 0), of pairs
drawn with probability 1/K, 1/t, or 1/K at first and then 1/t (`pairs=mixed`), here by default of all. Its gradients are
those of a batch, here of at most 100 images. The first round has no pull, as nothing is known yet. The paper's selection
at theta^0, where all clients are equal, is left out: it leaves w at .99 or more, and accuracy as it is.
The paper prints neither rho nor gamma; these were chosen on validation data, see models/README.md.
"""

from typing import Literal

from scool_ppl import CooperationModel, ProjectedGradient
from scool_ppl.infer.priors import Box
from scool_ppl.look import All, GradientAlignment, RandomPairs
from scool_ppl.mix import Pull


def build(
    num_clients: int,
    gamma: float = 0.5,
    rho: float = 0.1,
    domain: Literal["box", "simplex"] = "box",
    pairs: Literal["all", "clients", "time", "mixed"] = "all",
    warmup: int = 10,
    start: float = 1.0,
) -> CooperationModel:
    """`gamma`: step of the graph. `rho`: strength of the pull. `domain`: box, weights in [0, 1], or simplex, rows that
    sum to one, the paper's for language models. `pairs`: which are looked at in a round. `warmup`: rounds of 1/K before
    1/t. `start`: w before the first look.
    """
    return CooperationModel(
        prior=Box(num_clients, start if domain == "box" else 1 / max(1, num_clients - 1)),
        likelihood=GradientAlignment(),
        mixing=Pull(rho, since=1),
        peers=All() if pairs == "all" else RandomPairs(pairs, warmup),
        e_step=ProjectedGradient(gamma, domain),
    )
