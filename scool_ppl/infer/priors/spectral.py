"""Spectral clustering: how many communities an affinity of clients has, and who belongs to which."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from scool_ppl.graph.candidates import Peers

_DENSE = 256
"""Clients up to whom all eigenvalues are found sooner than a few."""


def spectral_memberships(affinity: Tensor, clusters: int, num_blocks: int, generator: torch.Generator) -> Tensor:
    """`soft` memberships (K, G) from spectral clustering of a symmetric affinity (K, K).

    k-means of the rows of D^-1/2 U, U the leading eigenvectors of D^-1/2 A D^-1/2, A without its diagonal.
    """
    labels = torch.arange(len(affinity)) % clusters
    if 1 < clusters < len(affinity):
        others = affinity.double().clone().fill_diagonal_(0)
        scale = others.sum(1).clamp(min=1e-30).rsqrt()
        random = seeded_random(generator)
        _, vectors = leading(scale[:, None] * others * scale, clusters, precision=1e-6, random=random)
        labels = k_means((scale[:, None] * vectors).numpy(), clusters, random)
    return soft(labels, num_blocks).to(affinity.dtype)


def soft(labels: Tensor, num_blocks: int, sure: float = 0.9) -> Tensor:
    """Memberships (K, G), `sure` on the label and the rest on all blocks alike."""
    return sure * torch.nn.functional.one_hot(labels, num_blocks).double() + (1 - sure) / num_blocks


def count_communities(affinity: Tensor, most: int) -> int:
    """One more than the eigenvalues of the modularity matrix A - d d' / sum(d) that stand out of noise, at most `most`.

    Communities push eigenvalues up, noise spreads them evenly about zero: the lowest tells how far noise alone reaches.
    """
    degree = affinity.sum(1)
    modularity = affinity - degree[:, None] * degree / degree.sum()
    random = np.random.RandomState(0)
    lowest = -leading(-modularity, 1, 1e-2, random)[0][0]
    highest = leading(modularity, most, 1e-3, random)[0]
    return min(most, 1 + int((highest > -1.2 * lowest).sum()))


def seeded_random(generator: torch.Generator) -> np.random.RandomState:
    """What scikit-learn draws from, seeded by one draw."""
    return np.random.RandomState(int(torch.randint(2**31 - 1, (1,), generator=generator)))


def leading(matrix: Tensor, count: int, precision: float, random: np.random.RandomState) -> tuple[Tensor, Tensor]:
    """The `count` largest eigenvalues (count,) of a symmetric matrix (K, K), rising, and their vectors (K, count).

    Of many clients by Lanczos' method, which takes some products with vectors in place of K^3 operations.
    """
    from scipy.sparse.linalg import ArpackError, LinearOperator

    size = len(matrix)
    start = random.uniform(-1, 1, size)
    if size > max(_DENSE, 2 * count):

        def times(vector: Any) -> Any:
            return (matrix @ torch.as_tensor(vector, dtype=matrix.dtype).flatten()).numpy()

        try:
            return _some_of(LinearOperator((size, size), times, dtype=start.dtype), count, precision, start)
        except ArpackError:  # they are too near to each other
            pass
    values, vectors = torch.linalg.eigh(matrix)
    return values[-count:], vectors[:, -count:]


def _some_of(matrix: Any, count: int, precision: float, start: Any) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues of what has products with vectors, and their vectors, from a vector to begin with."""
    from scipy.sparse.linalg import eigsh

    values, vectors = eigsh(
        matrix, k=count, which="LA", v0=start, tol=precision, ncv=min(matrix.shape[0], 2 * count + 32)
    )
    order = values.argsort()
    return torch.as_tensor(values[order]), torch.as_tensor(vectors[:, order].copy())


def k_means(points: Any, clusters: int, random: np.random.RandomState) -> Tensor:
    """The cluster of each point (K, D), (K,)."""
    from sklearn.cluster import KMeans  # a tenth of a second to import

    return torch.as_tensor(KMeans(clusters, n_init=10, random_state=random).fit_predict(points)).long()


def sparse_communities(peers: Peers, affinity: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Spectral clustering of a table (K, M) of affinities without a matrix of all pairs: at most `most` communities.

    As many as eigenvalues of D^-1/2 A D^-1/2 stand out of noise, A symmetric: of a random graph with mean degree d those
    but the first are about 2 / sqrt(d) at most. k-means of the rows of D^-1/2 U.
    """
    from scipy.sparse import coo_array, diags_array
    from scipy.sparse.linalg import ArpackError

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
    start = np.random.default_rng(0).standard_normal(count)  # of equal numbers it would hardly leave the first vector
    try:
        spectrum, vectors = _some_of(scale @ both @ scale, min(most, count - 1), 0, start)
    except ArpackError:  # nothing stands out
        return nobody
    degree = float((both > 0).sum()) / count
    communities = int((spectrum > 2.4 / degree**0.5).sum())
    if communities < 2:
        return nobody
    return k_means(scale @ vectors[:, -communities:].numpy(), communities, seeded_random(generator))
