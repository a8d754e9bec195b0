"""SBM: the stochastic block model of SCooL."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroParam
from torch import Tensor

from scool_ppl.base.arguments import positive, whole
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.distributions import BlockBernoulli, OneHot
from scool_ppl.infer.priors.base import GraphPrior
from scool_ppl.look.evidence import Evidence


class SBM(GraphPrior):
    """Clients belong to blocks; blocks decide who learns from whom (SCooL 4.2).

        pi_i ~ Dirichlet(alpha),  z_i ~ Categorical(pi_i),  Y_ij ~ Bernoulli(B[z_i, z_j])

    B (G, G) and alpha (G,) are learned; B stays within [clamp, 1 - clamp], which keeps the prior from overruling the
    evidence. More blocks than groups are harmless, fewer are not. `inside` and `outside` are B's start on and off the
    diagonal: an assortative start, without which the blocks dissolve. `spectral=False` starts the memberships at
    random. `temper` > 1 weakens the prior's say on every edge: log P(Y | z) / temper.
    """

    def __init__(
        self,
        num_clients: int,
        num_blocks: int = 8,
        *,
        alpha: float = 1.0,
        inside: float = 0.9,
        outside: float = 0.1,
        clamp: float = 0.1,
        learn_alpha: bool = True,
        spectral: bool = True,
        temper: float = 1.0,
    ) -> None:
        super().__init__(num_clients)
        if not whole(num_blocks) or not positive(alpha, temper) or not 0 < clamp < 0.5:
            raise InputError(
                f"SBM(num_blocks={num_blocks}, alpha={alpha}, temper={temper}, clamp={clamp}): expected at least one "
                "block, a positive alpha and temper, and a clamp between 0 and 0.5"
            )
        if not 0 < outside < inside < 1:
            raise InputError(f"SBM(inside={inside}, outside={outside}): expected 0 < outside < inside < 1")
        self.num_blocks, self.clamp, self.spectral, self.temper = num_blocks, clamp, spectral, temper
        start = torch.full((num_blocks, num_blocks), outside).fill_diagonal_(inside).clamp(clamp, 1 - clamp)
        self.B = PyroParam(start, constraint=dist.constraints.interval(clamp, 1 - clamp))
        concentration = torch.full((num_blocks,), alpha)
        if learn_alpha:
            self.alpha = PyroParam(
                concentration, constraint=dist.constraints.interval(min(0.01, alpha / 2), 100 * alpha)
            )
        else:
            self.register_buffer("alpha", concentration)

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            pi = pyro.sample("pi", dist.Dirichlet(self.alpha))
            z = pyro.sample("z", OneHot(pi))
        with self.edges:
            return self.sample_edges(self.receiver(z), self.sender(z))

    def sample_edges(self, receiver: Tensor, sender: Tensor) -> Tensor:
        """Y_ij ~ Bernoulli(z_i' B z_j)^(1 / temper), inside `self.edges`."""
        return pyro.sample("Y", BlockBernoulli(receiver, sender, self.B, temper=self.temper))

    def closed_form(self, moments: dict[str, Tensor], evidence: Evidence) -> dict[str, Tensor]:
        """B_gh = sum w_ij Omega_ig Omega_jh / sum Omega_ig Omega_jh over looked-at pairs; empty blocks keep theirs."""
        graph, z = moments["Y"], moments["z"]
        edges = z.T @ evidence.peers.combine(graph, z)
        pairs = z.T @ evidence.peers.combine(None, z)
        return {"B": self.density(edges, pairs)}

    def density(self, edges: Tensor, pairs: Tensor) -> Tensor:
        """edges / pairs (G, G) within the clamps; B as it is where there are no pairs."""
        density = torch.where(pairs > 1e-10, edges / pairs.clamp(min=1e-10), self.B.detach())
        return density.clamp(self.clamp, 1 - self.clamp)

    def starts(self, evidence: Evidence, log_lik: Tensor, generator: torch.Generator) -> list[dict[str, Tensor]]:
        """Memberships from spectral clustering of sigmoid(log_lik): as many clusters as stand out, and all blocks."""
        if not self.spectral:
            return []
        most = min(self.num_blocks, self.num_clients)
        if evidence.peers.is_table and 2 * evidence.peers.mask.shape[1] <= self.num_clients:
            labels = sparse_communities(evidence.peers, log_lik.sigmoid(), most, generator)
            return [{"z": soft(labels, self.num_blocks)}]
        affinity = evidence.peers.dense(log_lik.sigmoid())
        affinity = (affinity + affinity.T) / 2 + 1e-3  # connected, as the Laplacian needs
        counts = sorted({count_communities(affinity, most), most})
        return [{"z": spectral_memberships(affinity, count, self.num_blocks, generator)} for count in counts]


def spectral_memberships(
    affinity: Tensor, clusters: int, num_blocks: int, generator: torch.Generator, sure: float = 0.9
) -> Tensor:
    """Soft memberships (K, G) from spectral clustering of a symmetric affinity (K, K), `sure` on the cluster found."""
    from sklearn.cluster import SpectralClustering  # a second to import

    labels = torch.arange(len(affinity)) % clusters
    if 1 < clusters < len(affinity):
        seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
        clustering = SpectralClustering(clusters, affinity="precomputed", random_state=seed)
        labels = torch.as_tensor(clustering.fit_predict(affinity.double().numpy())).long()
    return soft(labels, num_blocks, sure).to(affinity.dtype)


def soft(labels: Tensor, num_blocks: int, sure: float = 0.9) -> Tensor:
    """Memberships (K, G), `sure` on the label and the rest on all blocks alike."""
    return sure * torch.nn.functional.one_hot(labels, num_blocks).double() + (1 - sure) / num_blocks


def sparse_communities(peers: Peers, affinity: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Spectral clustering of a table (K, M) of affinities without a matrix of all pairs: at most `most` communities.

    As many as eigenvalues of D^-1/2 A D^-1/2 stand out of noise, A symmetric: of a random graph with mean degree d those
    but the first are about 2 / sqrt(d) at most. k-means of the rows of D^-1/2 U.
    """
    from scipy.sparse import coo_array, diags_array
    from scipy.sparse.linalg import ArpackError, eigsh
    from sklearn.cluster import KMeans

    rows, columns, senders = peers.pairs()
    # A little for every pair, as the Laplacian needs: evidence may say of all that they do not cooperate.
    values = (affinity[rows, columns].double().nan_to_num(0) + 1e-9).numpy()
    count = peers.num_clients
    nobody = torch.zeros(count, dtype=torch.long)
    if len(values) == 0:
        return nobody
    one_way = coo_array((values, (rows.numpy(), senders.numpy())), shape=(count, count)).tocsr()
    both = (one_way + one_way.T) / 2
    scale = diags_array(1 / np.sqrt(both.sum(axis=1) + 1e-3))
    try:
        spectrum, vectors = eigsh(scale @ both @ scale, k=min(most, count - 1), which="LA", v0=np.ones(count))
    except ArpackError:  # nothing stands out
        return nobody
    degree = float((both > 0).sum()) / count
    communities = int((spectrum > 2.4 / degree**0.5).sum())
    seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
    if communities < 2:
        return nobody
    points = scale @ vectors[:, -communities:]
    return torch.as_tensor(KMeans(communities, n_init=10, random_state=seed).fit_predict(points)).long()


def count_communities(affinity: Tensor, most: int) -> int:
    """One more than the eigenvalues of the modularity matrix A - d d' / sum(d) that stand out of noise, at most `most`.

    Communities push eigenvalues up, noise spreads them evenly about zero: the lowest tells how far noise alone reaches.
    """
    degree = affinity.sum(1)
    spectrum = torch.linalg.eigvalsh(affinity - degree[:, None] * degree / degree.sum())
    return min(most, 1 + int((spectrum > -1.2 * spectrum[0]).sum()))
