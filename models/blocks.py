"""Blocks: clients whose images the others of a block explain learn from each other.

    P(z) = alpha^G prod_g Gamma(n_g) Gamma(alpha) / Gamma(alpha + K)     a Chinese restaurant: G tables of n_g clients
    t_j ~ Bernoulli(1 - doubt),  Y_ij = [z_i = z_j] t_j                  who of a block is heard
    P(D_i | Y_i) = prod_n mean_{j: Y_ij = 1} p(y_n | x_n, theta_j),      or alone: exp(-n_i (own held-out loss + 2 errors))
    theta_i <- theta_i + sum_j wbar_ij (what local training did to theta_j),  wbar = (Y + I), rows normalised

theta_j are networks that nobody has mixed yet, so all images of i are held out for them: block and alone are in one
currency, nats, and nothing has to be tuned to a federation: no reference loss, no temperature, no number of blocks. The
E-step finds the most probable partition; the program is not linear in z.
"""

from scool_ppl import CooperationModel
from scool_ppl.infer import ModeSearch
from scool_ppl.infer.priors import Partition
from scool_ppl.look import BlockMixture
from scool_ppl.mix import MixUpdates


def build(
    num_clients: int,
    alpha: float = 1e-3,
    doubt: float = 3e-7,
    errors: float = 2.0,
    searches: int = 3,
    clip: float | None = None,
) -> CooperationModel:
    """`alpha`: log alpha nats of evidence are wanted for each block. `doubt`: log doubt nats against each client who is
    not heard. `errors`: standard errors by which alone must win. `searches`: cuts of the tree to begin at. `clip` as in
    scool_sbm.
    """
    return CooperationModel(
        Partition(num_clients, alpha=alpha, doubt=doubt),
        BlockMixture(errors),
        MixUpdates(clip),
        e_step=ModeSearch(searches=searches),
    )
