"""Latent space: clients have places in the plane, and learn from those who are near (after Hoff et al., 2002).

    x_i ~ Normal(0, I) in the plane,  logit P(Y_ij = 1) = b - spread |x_i - x_j|,  b is learned
    P(D | theta, Y) as in SCooL, case 1.2;  theta_i <- theta_i + sum_j wbar_ij (what local training did to theta_j)

No paper has it: an example of a prior with a *continuous* latent, inferred by pyro.infer.SVI. MomentELBO is exact in Y
given x and unbiased in x. The mean of x is the layout of the drawing.
"""

import pyro
import pyro.distributions as dist
import torch

from scool_ppl import CooperationModel, Evidence, GraphPrior, InputError, SVIStep
from scool_ppl.look import CrossLoss, Reference
from scool_ppl.mix import MixUpdates


class LatentSpace(GraphPrior):
    """logit P(Y_ij = 1) = b - spread |x_i - x_j|, with places x (K, 2)."""

    positions = "x"

    def __init__(self, num_clients: int, spread: float) -> None:
        super().__init__(num_clients)
        if spread <= 0:
            raise InputError(f"spread is {spread}, expected a positive number")
        self.spread = spread
        self.b = torch.nn.Parameter(torch.tensor(2.0))

    def model(self, evidence: Evidence) -> torch.Tensor:
        b = self.b  # read outside the plates, so that a PyroSample in its place is one number, too
        with self.clients:
            x = pyro.sample("x", dist.Normal(torch.zeros(2, dtype=b.dtype), 1.0).to_event(1))
        away = (self.receiver(x) - self.sender(x)).square().sum(-1).add(1e-6).sqrt()
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=b - self.spread * away))


def build(
    num_clients: int,
    spread: float = 3.0,
    n_eff: float = 5.0,
    reference: Reference = "midpoint",
    steps: int = 100,
    learning_rate: float = 0.1,
) -> CooperationModel:
    """`spread`: scale of the plane. `steps`, `learning_rate`: those of SVI's Adam. The others as in scool_sbm."""
    return CooperationModel(
        prior=LatentSpace(num_clients, spread),
        likelihood=CrossLoss(n_eff, reference=reference),
        mixing=MixUpdates(),
        e_step=SVIStep(steps=steps, optim=pyro.optim.Adam({"lr": learning_rate})),
    )
