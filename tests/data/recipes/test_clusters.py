"""Clusters of images: what was planted is found, numbered by size, with all randomness from one generator."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch

from scool_ppl.base.randomness import generator
from scool_ppl.data.recipes.clusters import clusters
from scool_ppl.errors import InputError
from tests.helpers.pools import make_pool


def test_clusters_find_what_was_planted_whatever_the_labels_are() -> None:
    kind = torch.arange(3).repeat_interleave(torch.tensor([30, 20, 50]))[
        torch.randperm(100, generator=generator(0, "a"))
    ]
    looks = 20 * torch.randn(3, 1, 5, 6, generator=generator(0, "looks"))
    images = looks[kind] + torch.randn(100, 1, 5, 6, generator=generator(0, "noise"))
    for dimensions in (2, 4, 30, 256):  # through principal axes and without
        train, test = clusters(images[:80], images[80:], 3, dimensions, generator(1, "federation"))
        found = torch.cat([train, test])
        # The largest is 0, then 1, then 2; 50 of kind 2, 30 of kind 0, 20 of kind 1.
        assert torch.equal(found, torch.tensor([1, 2, 0])[kind])
    assert torch.equal(clusters(images, images[:1], 1, 4, generator(0, "x"))[0], torch.zeros(100, dtype=torch.long))


def test_clusters_refuse_what_cannot_be_found() -> None:
    same = torch.ones(20, 4)
    with pytest.raises(InputError, match="latent found 1 clusters in the images, expected groups=3"):
        clusters(same, same, 3, 256, generator(0, "x"))
    with pytest.raises(InputError, match="groups=41, expected 1 to 40"):
        clusters(same, same, 41, 256, generator(0, "x"))
    with pytest.raises(InputError, match="dimensions=0"):
        clusters(same, same, 1, 0, generator(0, "x"))


def test_clusters_leave_global_state_alone() -> None:
    pool = make_pool()
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state(), list(warnings.filters))  # noqa: NPY002
    clusters(pool.train_inputs, pool.test_inputs, 5, 3, generator(0, "federation"))
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])
    assert warnings.filters == before[3]


def test_many_rows_are_all_clustered_though_few_are_fitted() -> None:
    """More rows than centres are found on: 6,000 in two clouds far apart."""
    kind = torch.arange(6000) % 3 // 2
    places = torch.stack([100.0 * kind, torch.linspace(0, 1, 6000)], 1)
    train, test = clusters(places[:5500], places[5500:], 2, 2, generator(0, "federation"))
    assert torch.equal(torch.cat([train, test]), kind), "twice as many are of kind 0, which is the first by size"
