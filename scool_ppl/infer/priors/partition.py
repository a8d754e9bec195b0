"""Partition: blocks of clients, as many as there are, and who of a block is heard."""

from __future__ import annotations

from typing import Any

import pyro
import torch
from torch import Tensor

from scool_ppl.base.arguments import positive
from scool_ppl.errors import InputError
from scool_ppl.infer.distributions import OneHot
from scool_ppl.infer.priors.base import GraphPrior
from scool_ppl.look.evidence import Evidence


class Partition(GraphPrior):
    """Clients sit at tables, as in a Chinese restaurant, and learn from those at theirs who are heard.

        P(z) = alpha^G prod_g Gamma(n_g) Gamma(alpha) / Gamma(alpha + K)     G blocks of n_g clients each
        t_j ~ Bernoulli(1 - doubt)                                           is j heard?
        Y_ij = [z_i = z_j] t_j,  i != j

    The number of blocks is not given. A small alpha wants evidence for every block, a small doubt evidence against every
    client who is not to be heard, both in nats: log alpha, log doubt. P(z) is a factor beside a site z that itself says
    nothing, so draws of the program are not draws of P(z). The program is not linear in z: infer it by
    `ModeSearch`, which begins at cuts of an average-linkage tree of the clients' losses.
    """

    needs = ("image_loss",)

    def __init__(self, num_clients: int, *, alpha: float = 1e-3, doubt: float = 3e-7) -> None:
        super().__init__(num_clients)
        if not positive(alpha) or not 0 < doubt < 1:
            raise InputError(
                f"Partition(alpha={alpha}, doubt={doubt}): expected a positive alpha and a doubt between 0 and 1"
            )
        self.register_buffer("alpha", torch.tensor(float(alpha), dtype=torch.float64))
        self.register_buffer("doubt", torch.tensor(float(doubt), dtype=torch.float64))

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            # Probabilities are taken as they are: z itself says nothing, what a partition is worth stands below.
            z = pyro.sample("z", OneHot(probs=torch.ones(self.num_clients, self.num_clients, dtype=torch.float64)))
            heard = pyro.sample("heard", pyro.distributions.Bernoulli((1 - self.doubt).expand(self.num_clients)))
        present = evidence.present.double()
        pyro.factor("partition", self.log_prior((z * present[:, None]).sum(0)))
        with self.edges:
            same = z @ z.transpose(-1, -2) * heard * evidence.peers.mask
            return pyro.deterministic("Y", same, event_dim=0)

    def log_prior(self, sizes: Tensor) -> Tensor:
        """log P(z) of blocks of these sizes (G,), empty ones included."""
        full = sizes > 0
        each = torch.where(full, self.alpha.log() + sizes.clamp(min=1).lgamma(), torch.zeros_like(sizes))
        return each.sum(-1) + self.alpha.lgamma() - (self.alpha + sizes.sum(-1)).lgamma()

    def starts(self, evidence: Evidence, log_lik: Any, generator: torch.Generator) -> list[dict[str, Tensor]]:
        """Cuts of an average-linkage tree of log(1 + loss above the lowest), each pair's loss averaged over directions."""
        from scipy.cluster.hierarchy import fcluster, linkage
        from scipy.spatial.distance import squareform

        losses = evidence.image_loss.double().nanmean((2, 3))
        losses = losses.masked_fill(~losses.isfinite(), torch.nan)
        pairs = torch.stack([losses, losses.T]).nanmean(0).fill_diagonal_(torch.nan)
        known = pairs[~pairs.isnan()]
        if len(known) == 0:
            return [{"z": torch.eye(self.num_clients, dtype=torch.float64)}]
        distance = (pairs.nan_to_num(float(known.max())) - known.min()).log1p().fill_diagonal_(0)
        tree = linkage(squareform(distance.numpy(), checks=False), "average")
        labels = [torch.as_tensor(fcluster(tree, count, "maxclust")).long() - 1 for count in cuts(self.num_clients)]
        return [{"z": torch.nn.functional.one_hot(label, self.num_clients).double()} for label in labels]


def cuts(most: int) -> list[int]:
    """1, 2, 3, ... 12, and from there on each a quarter more, up to `most`: numbers of blocks to begin with."""
    counts = [1]
    while counts[-1] < most:
        counts.append(min(most, counts[-1] + max(1, counts[-1] // 4 if counts[-1] >= 12 else 1)))
    return counts
