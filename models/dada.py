"""Dada: the graph is learned from the distances of the networks, under a smoothness prior (Zantedeschi et al., 2020).

    P(Y) ~ exp(mu sum_i log d_i - lambda / 2 |Y|^2),  d_i = sum_j Y_ij, Y_ij >= 0          a smoothness prior on graphs
    P(theta | Y) ~ exp(-kappa / 2 sum_ij Y_ij |theta_i - theta_j|^2)                         cases 1.1 and 2.1
    theta_i <- theta_i - eta (grad L_i + rho sum_j w_ij (theta_i - theta_j)) at every local step

q(Y) is a point mass, moved by projected gradient steps in the box; distances are measured in units of their mean.
"""

from scool_ppl import CooperationModel, InputError, ProjectedGradient
from scool_ppl.infer.priors import Box
from scool_ppl.look import ModelDistance
from scool_ppl.mix import Pull


class SmoothGraph(Box):
    """log P(Y) = mu sum_i log d_i - lambda / 2 |Y|^2 on the box, up to a constant."""

    def __init__(self, num_clients: int, degree: float, sparsity: float) -> None:
        super().__init__(num_clients)
        if degree < 0 or sparsity < 0:
            raise InputError(f"degree={degree}, sparsity={sparsity}: expected both to be at least 0")
        self.degree, self.sparsity = degree, sparsity

    def log_density(self, graph):
        return self.degree * (graph.sum(1) + 1e-6).log().sum() - self.sparsity / 2 * graph.square().sum()


def build(
    num_clients: int,
    degree: float = 1.0,
    sparsity: float = 0.1,
    kappa: float = 4.0,
    rho: float = 0.2,
    step: float = 0.05,
    steps: int = 50,
) -> CooperationModel:
    """`degree`: mu, how much every client wants some neighbours. `sparsity`: lambda, the weight of |Y|^2. `kappa`:
    weight of the distances. `rho`: strength of the pull. `step`, `steps`: length and number of the E-step's gradient
    steps.
    """
    return CooperationModel(
        prior=SmoothGraph(num_clients, degree, sparsity),
        likelihood=ModelDistance(kappa),
        mixing=Pull(rho),
        e_step=ProjectedGradient(step, "box", steps),
    )
