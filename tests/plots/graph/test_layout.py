"""Where clients stand: blocks apart, those without edges below, those of a latent space at their places."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.plots.graph.layout import component_places, layout
from tests.helpers.pictures import GROUPS, grouped

UNEQUAL = (0,) * 30 + (1,) * 3 + (2,) * 2


@pytest.mark.parametrize("groups", [GROUPS, UNEQUAL, tuple(i % 12 for i in range(100)), (*(0,) * 20, *range(10)) * 2])
def test_blocks_are_apart(groups: tuple[int, ...]) -> None:
    graph = grouped(groups, memberships=torch.nn.functional.one_hot(torch.tensor(groups)))
    places = np.array(list(layout(graph).values()))
    assert np.abs(places).max() == pytest.approx(1)
    members = [places[np.array(groups) == group] for group in sorted(set(groups))]
    centres = np.array([block.mean(axis=0) for block in members])
    radii = np.array([np.linalg.norm(block - block.mean(axis=0), axis=1).max() for block in members])
    gaps = np.linalg.norm(centres[:, None] - centres, axis=2) - radii - radii[:, None]
    nearest = np.median(np.sort(np.linalg.norm(places[:, None] - places, axis=2), axis=1)[:, 1])
    assert gaps[~np.eye(len(members), dtype=bool)].min() > 0.1 * nearest


def test_clients_without_edges_stand_in_rows_below() -> None:
    graph = grouped((*(0,) * 5, *(1,) * 5, *range(2, 12)))
    places = np.array(list(layout(graph).values()))
    linked, alone = places[:10], places[10:]
    assert alone[:, 1].max() < linked[:, 1].min() - 0.1
    assert len(set(alone[:, 1].round(6))) < 5
    nobody = np.array(list(layout(grouped(tuple(range(30)))).values()))
    assert len(np.unique(nobody.round(6), axis=0)) == 30
    assert 4 <= len(set(nobody[:, 1].round(6))) <= 6, "as a page, neither a line nor a column"


def test_a_ring_of_few_edges_is_pulled_by_them_and_repeats_with_its_seed() -> None:
    weights = torch.zeros(12, 12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    weights[order, order.roll(1)] = 0.9
    chain = CooperationGraph(weights, tuple(map(str, range(12))), Peers.everybody(12), memberships=torch.ones(12, 1))
    before = layout(chain)
    assert layout(chain) == before
    assert layout(chain, seed=1) != before
    places = np.array(list(before.values()))
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    assert apart[order, order.roll(1)].mean() < 0.8 * apart[~np.eye(12, dtype=bool)].mean()


def test_clients_of_a_latent_space_are_drawn_at_their_positions() -> None:
    positions = torch.tensor([[0.0, 0.0], [4.0, 0.0], [4.0, 2.0]])
    graph = CooperationGraph(torch.zeros(3, 3), ("a", "b", "c"), Peers.everybody(3), positions=positions)
    found = np.array(list(layout(graph).values()))
    assert np.allclose(found, [[-1, -0.5], [1, -0.5], [1, 0.5]]), "moved and scaled, never turned or stretched"


@pytest.mark.parametrize("idle", [0, 40])
def test_components_cover_nobody(idle: int) -> None:
    """One of a single client stands beside it, those that nobody uses above."""
    places = np.random.default_rng(0).uniform(-1, 1, (12, 2))
    use = np.concatenate([np.eye(12), np.ones((12, 1)), np.zeros((12, idle))], axis=1)
    seats = component_places(use, places)
    everything = np.concatenate([places, seats])
    apart = np.linalg.norm(everything[:, None] - everything, axis=2) + 9 * np.eye(len(everything))
    nearest = np.linalg.norm(places[:, None] - places, axis=2) + 9 * np.eye(12)
    assert apart[12:].min() > 0.8 * np.quantile(nearest.min(1), 0.1)
    assert np.linalg.norm(seats[:12] - places, axis=1).max() < 3 * nearest.min(1).max()
    assert (seats[13:, 1] > everything[:25, 1].max()).all()
