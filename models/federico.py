"""FedeRiCo: every client's data come from one of the clients' models; predictions are mixtures (Sui et al., 2022).

    z_i ~ Categorical(Pi_i),  Y_i the one-hot row of z_i,  P(D_i | z_i = j) = P(D_i | theta_j)
    w_ij = softmax_j(log Pi_ij - loss of theta_j on D_i)
    theta_i <- theta_i - eta sum_j w_ji grad L(D_j; theta_i)         trained by those who use it: transposed
    prediction: sum_j w_ij h_theta_j(x)

The loss is averaged over the rounds, (1 - beta) last + beta new with beta = 0.6, under a uniform prior; or with
`learn=true` Pi_ij = w_ij, the M-step of the prior, so that losses accumulate. Each round a client looks at M = 3 others,
epsilon-greedily with epsilon = 0.3. A client never looked at stays masked: the paper's starting loss of 0 would make it the
best. The paper sums the loss over all images of a client, which makes rows one-hot at once; here n_eff of them count.
"""

from scool_ppl import CooperationModel, NaturalGradient
from scool_ppl.infer.priors import ModelMixture
from scool_ppl.look import EpsilonGreedy
from scool_ppl.look import ModelMixture as Mixture
from scool_ppl.mix import ServeUsers


def build(
    num_clients: int,
    n_eff: float = 2.0,
    learn: bool = False,
    average: float | None = 0.6,
    count: int = 3,
    epsilon: float = 0.3,
) -> CooperationModel:
    """`n_eff`: as many images' worth of loss count (the paper: all of a client). `learn`: Pi instead of a uniform prior.
    `average`: beta, the share of the new loss in the average over rounds, none for no average (printed). `count`: M,
    how many others a client looks at in a round (printed). `epsilon`: chance of a random one (printed).
    """
    return CooperationModel(
        prior=ModelMixture(num_clients, learn=learn),
        likelihood=Mixture(n_eff, average=None if learn else average),
        mixing=ServeUsers(),
        peers=EpsilonGreedy(count, epsilon, accumulate=False, remember=not learn),
        e_step=NaturalGradient(sweeps=1),  # rows do not depend on one another: exact
    )
