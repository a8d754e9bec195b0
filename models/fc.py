"""FC: each client averages the updates within a radius of a centre of its own (Werner et al., 2023).

    Delta_j ~ Normal(v_i, s^2 I) if j is of i's cluster, m_ij = 1, or of the normal's density at distance tau_i if m_ij = 0
    m_ij = 1 if |Delta_j - v_i| <= tau_i, else 0             the more probable, N candidates, of whom i itself is one
    v_i <- 1/N sum_j (m_ij Delta_j + (1 - m_ij) v_i),  from v_i = Delta_i,  so often as `steps`: Threshold-Clustering
    v_i = sum_j Y_ij Delta_j,  theta_i <- theta_i^t + sum_j Y_ij Delta_j

Cases 1.1 and 2.2 with a prior of Y that sees the updates Delta_j = theta_j^{t+1/2} - theta_j^t: Y_i is the one row that the
rule comes to. A centre for each client, as in the paper's decentralised setting; centres of clusters with a network of
their own would be seats without data. Delta_j is of a whole round from j's own network, as in Momentum-Clustering; the
paper's first algorithm asks j for its gradient at theta_i, K^2 gradients a step. Momentum over rounds is left out. The
radius of the theory needs the variances; tau_i is the quantile `share` of the distances at hand, anew in every step.
"""

import pyro
import pyro.distributions as dist
import torch

from scool_ppl import CooperationModel, Evidence, GraphPrior, InputError
from scool_ppl.look import Ignored
from scool_ppl.mix import MixUpdates


class Centres(GraphPrior):
    """Y_i = the weights of the updates in client i's centre, Dirac."""

    includes_self = True
    kind = "point"
    needs = ("round_updates",)

    def __init__(self, num_clients: int, share: float, steps: int) -> None:
        super().__init__(num_clients)
        self.share, self.steps = share, steps
        if not 0 <= share <= 1 or steps < 1:
            raise InputError(f"share={share}, steps={steps}: expected a share in [0, 1] and at least one step")

    def rows(self, evidence: Evidence) -> torch.Tensor:
        """(K, M) Y; candidates whose update is not finite are in no cluster."""
        peers = evidence.peers
        updates = torch.cat([value.flatten(1).double() for value in evidence.round_updates.values()], 1)
        rows, count = peers.own().double(), peers.mask.sum(1, keepdim=True).clamp(min=1)
        for _ in range(self.steps):
            far = peers.distance(peers.combine(rows, updates), updates).cpu().masked_fill(~peers.mask, torch.nan)
            near = far <= far.nanquantile(self.share, 1, keepdim=True)
            rows = (near + (count - near.sum(1, keepdim=True)) * rows) / count
        return rows

    def model(self, evidence: Evidence) -> torch.Tensor:
        rows = self.rows(evidence)
        with self.edges:
            return pyro.sample("Y", dist.Delta(rows), obs=rows)


def build(num_clients: int, share: float = 0.25, steps: int = 10) -> CooperationModel:
    """`share`: of the candidates, itself among them, whom the radius takes in. `steps`: of the centre in a round."""
    return CooperationModel(Centres(num_clients, share, steps), Ignored(), MixUpdates())
