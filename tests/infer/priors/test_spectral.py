"""Communities of an affinity, counted and found: all eigenvalues of few clients, some of many."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score

from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.priors.spectral import (
    count_communities,
    leading,
    sparse_communities,
    spectral_memberships,
)
from tests.helpers.priors import rng
from tests.helpers.small import close, normal


@pytest.mark.parametrize("size", [24, 400])
def test_communities_are_counted_and_found_in_an_affinity(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many clients without an eigen-decomposition, which takes K^3 operations."""
    if size > 256:
        monkeypatch.setattr(torch.linalg, "eigh", lambda *_: pytest.fail("all eigenvalues"))
    group = torch.arange(size) % 4
    random = torch.rand(size, size, generator=rng(), dtype=torch.float64)
    affinity = torch.where(group[:, None] == group, 0.8, 0.1).double() + 0.1 * (random + random.T)
    assert count_communities(affinity, 8) == 4
    assert count_communities(affinity, 3) == 3
    memberships = spectral_memberships(affinity, 4, 8, rng())
    close(memberships.sum(1), torch.ones(size))
    close(memberships.max(1).values, torch.full((size,), 0.9 + 0.1 / 8, dtype=torch.float64))
    assert adjusted_rand_score(group, memberships.argmax(1)) == 1


@pytest.mark.parametrize("size", [5, 300])
def test_leading_eigenvalues_and_their_vectors(size: int) -> None:
    matrix = normal(size, size)
    matrix = matrix + matrix.T
    values, vectors = leading(matrix, 3, 1e-10, np.random.RandomState(0))
    close(values, torch.linalg.eigvalsh(matrix)[-3:], 1e-6)
    close(matrix @ vectors, vectors * values, 1e-5)


def test_a_start_is_that_of_another_library() -> None:
    """Where clusters are unsure, too: the same vectors, the same draws."""
    random = torch.rand(30, 30, generator=rng(), dtype=torch.float64)
    affinity = random + random.T
    found = spectral_memberships(affinity, 5, 8, rng()).argmax(1)
    seed = int(torch.randint(2**31 - 1, (1,), generator=rng()))
    expected = SpectralClustering(5, affinity="precomputed", random_state=seed).fit_predict(affinity.numpy())
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(("groups", "most"), [(4, 8), (3, 3), (1, 8)])
def test_communities_of_a_table_are_found_without_a_matrix(groups: int, most: int) -> None:
    """600 clients, 12 candidates each, 8 of the own group and 4 of anybody, weights that overlap."""
    size, random = 600, rng(groups)
    group = torch.arange(size) % groups
    alike = torch.stack([(torch.randperm(size // groups, generator=random)[:8] * groups + g) for g in group.tolist()])
    senders = torch.cat([alike, torch.randint(size, (size, 4), generator=random)], 1)
    peers = Peers(senders != torch.arange(size)[:, None], senders)
    together = group[:, None] == group[senders]
    affinity = 0.3 * together + 0.6 * torch.rand(senders.shape, generator=random, dtype=torch.float64)
    found = sparse_communities(peers, affinity, most, rng())
    assert adjusted_rand_score(group.numpy(), found.numpy()) == 1
    assert int(found.max()) + 1 == groups
    again = sparse_communities(peers, affinity, most, rng())
    assert torch.equal(found, again)


@pytest.mark.parametrize("affinity", [0.0, float("nan"), 1e-300])
def test_a_table_that_says_nothing_is_one_community(affinity: float) -> None:
    senders = torch.stack([torch.randperm(50, generator=rng(i))[:6] for i in range(50)])
    peers = Peers(senders != torch.arange(50)[:, None], senders)
    table = torch.full(senders.shape, affinity).double()
    for most in (3, 50):
        assert not bool(sparse_communities(peers, table, most, rng()).any())
    assert not bool(sparse_communities(peers._replace(mask=torch.zeros_like(peers.mask)), table, 3, rng()).any())
