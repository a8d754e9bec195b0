"""BlockMixture: what it says of a graph equals the printed sums, written as loops, and what is remembered is used."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scool_ppl.em.em import EM
from scool_ppl.em.model import CooperationModel, Schedule
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.estep.modes import ModeSearch
from scool_ppl.infer.priors.partition import Partition
from scool_ppl.look.evidence import Evidence
from scool_ppl.look.images import BlockMixture, _own_loss, explained, worse
from scool_ppl.mix import MixUpdates
from scool_ppl.train.round_start import Remembered
from tests.helpers.small import clients, close, normal, uniform

K, IMAGES, HELD = 5, 4, 3


def unequal(seed: int = 0, positions: int = 1) -> tuple[Tensor, Tensor]:
    """Losses (K, K, n, T) and own held-out losses (K, v, T) of clients with 1 to 4 images and 0 to 3 held-out ones."""
    losses = 3 * uniform(K, K, IMAGES, positions, seed=seed)
    own = 3 * uniform(K, HELD, positions, seed=seed + 1)
    for i in range(K):
        losses[i, :, 1 + i % IMAGES :] = torch.nan
        own[i, i % (HELD + 1) :] = torch.nan
    return losses, own


def images_of(losses: Tensor, i: int) -> list[int]:
    return [n for n in range(losses.shape[2]) if not bool(losses[i, 0, n].isnan().any())]


def heard_by_hand(losses: Tensor, i: int, heard: list[int]) -> float:
    """log prod_n mean_j p(y_n | x_n, theta_j), at each position its own mean, a sequence counting once."""
    total = 0.0
    for n in images_of(losses, i):
        for t in range(losses.shape[3]):
            mean = sum(math.exp(-float(losses[i, j, n, t])) for j in heard) / len(heard)
            total += math.log(mean) / losses.shape[3]
    return total


def alone_by_hand(losses: Tensor, own: Tensor, errors: float) -> list[float]:
    """-n_i (h_i + errors s_i)"""
    held = [[float(loss.mean()) for loss in rows if not bool(loss.isnan().any())] for rows in own]
    every = [loss for rows in held for loss in rows]
    pooled = sum(every) / len(every)
    means = [sum(rows) / len(rows) if rows else pooled for rows in held]
    squares = sum((loss - mean) ** 2 for rows, mean in zip(held, means, strict=True) for loss in rows)
    within = squares / max(1, sum(len(rows) - 1 for rows in held if rows))
    known = [mean for rows, mean in zip(held, means, strict=True) if rows]
    centre = sum(known) / len(known)
    variance = sum((mean - centre) ** 2 for mean in known) / (len(known) - 1)
    between = max(0.0, variance - within / (len(every) / len(known)))
    found = []
    for i in range(len(held)):
        share = between / (between + within / len(held[i])) if held[i] else 0.0
        of_own = share * within / max(1, len(held[i]))
        average = {j: float(losses[i, j].nanmean()) for j in range(len(held)) if j != i}
        nearest = sorted(average, key=lambda j: average[j])[:3]
        each = [
            sum(
                math.log(sum(math.exp(-float(losses[i, j, n, t])) for j in nearest) / 3) for t in range(losses.shape[3])
            )
            / losses.shape[3]
            for n in images_of(losses, i)
        ]
        mean = sum(each) / len(each)
        spread = sum((one - mean) ** 2 for one in each) / max(1, len(each) - 1)
        error = math.sqrt(spread / len(each) + of_own)
        found.append(-len(each) * (share * means[i] + (1 - share) * pooled + errors * error))
    return found


@pytest.mark.parametrize("positions", [1, 2])
def test_it_equals_the_printed_sums(positions: int) -> None:
    losses, own = unequal(positions=positions)
    images = explained(losses, own, errors=2.0)
    alone = alone_by_hand(losses, own, 2.0)
    close(images.alone, torch.tensor(alone, dtype=torch.float64))
    for seed in range(5):
        graph = (uniform(K, K, seed=seed) < 0.4).double().fill_diagonal_(0)
        graph[seed] = 0
        found = images.log_likelihood(graph)
        for i in range(K):
            heard = graph[i].nonzero().flatten().tolist()
            expected = heard_by_hand(losses, i, heard) if heard else alone[i]
            assert float(found[i]) == pytest.approx(expected, abs=1e-9)


def test_a_graph_in_between_is_blended_and_the_diagonal_does_not_count() -> None:
    images = explained(*unequal())
    graph = torch.zeros(K, K, dtype=torch.float64)
    graph[0, 1] = 0.25
    whole = images.log_likelihood(torch.eye(K, dtype=torch.float64) * 3 + (graph > 0))
    found = images.log_likelihood(graph)
    close(found[0], 0.25 * whole[0] + 0.75 * images.alone[0])
    close(found[1:], images.alone[1:])


def test_densities_above_one_change_nothing_but_the_unit() -> None:
    """Regression with a small sigma: losses far below zero."""
    losses, own = unequal()
    graph = (uniform(K, K, seed=9) < 0.5).double()
    plain, shifted = (explained(losses - shift, own - shift).log_likelihood(graph) for shift in (0.0, 30.0))
    sizes = torch.tensor([len(images_of(losses, i)) for i in range(K)])
    close(shifted, plain + 30.0 * sizes, atol=1e-8)


def test_a_network_that_says_nothing_has_no_density() -> None:
    losses, own = unequal()
    losses[:, 2] = torch.where(losses[:, 2].isnan(), torch.nan, torch.inf)
    found = explained(losses, own).log_likelihood(torch.ones(K, K, dtype=torch.float64))
    assert bool(found.isfinite().all())
    assert float(found[0]) == pytest.approx(heard_by_hand(losses.clamp(max=1e3), 0, [1, 2, 3, 4]), abs=1e-9)


def test_it_is_the_worse_of_what_a_network_was_and_what_it_is() -> None:
    first, now = unequal()[0], unequal(seed=5)[0]
    first[3, 1] = torch.nan  # a pair that was not there
    memory = {"image_loss": Remembered(first, (0, 1)), "own_image_loss": Remembered(unequal()[1], (0,))}
    evidence = Evidence.given(
        loss=torch.zeros(K, K, dtype=torch.float64),
        image_loss=now,
        own_image_loss=torch.ones(K, 1, 1),
        chance=9.0,
        round=3,
    )
    evidence._shown.update(unmixed_image_loss=None, own_image_loss=None)
    evidence.memory = memory
    graph = (uniform(K, K, seed=4) < 0.6).double()
    expected = explained(torch.fmax(first, now), unequal()[1]).log_likelihood(graph).sum()
    close(BlockMixture()(evidence)(graph), expected)
    assert BlockMixture().to_remember(evidence, BlockMixture()(evidence)) == {}
    longer = worse(first[:, :, :2], now)
    assert torch.equal(longer[:, :, 2:].nan_to_num(-1), now[:, :, 2:].nan_to_num(-1))


def test_the_first_look_is_remembered_and_a_track_beside_replaces_it() -> None:
    whose = clients(K)
    em = EM(CooperationModel(Partition(K), BlockMixture(), MixUpdates(), e_step=ModeSearch()), whose, Schedule(1, 2))
    state, info = em.step(em.init())
    kept = state.memory["image_loss"].value
    assert kept.shape[:2] == (K, K)
    assert torch.equal(state.memory["image_loss"].value.nan_to_num(-1), kept.nan_to_num(-1))
    other = {name: value + 0.5 * normal(*value.shape, seed=1) for name, value in info.trained.items()}
    start = em.round_start(state)
    plain = em.look(start, em.train(state, start).trained.params)
    beside = em.look(start, em.train(state, start).trained.params, unmixed=other)
    assert plain.evidence.unmixed_image_loss is None
    first = em.look(em.round_start(em.init()), other).evidence.image_loss
    found = beside.evidence.unmixed_image_loss
    assert found is not None
    close(found.nan_to_num(-1), first.nan_to_num(-1))
    assert plain.memory == {} == beside.memory


def test_it_needs_everybody_and_a_number_of_errors() -> None:
    table = Peers(torch.ones(K, 2, dtype=torch.bool), torch.zeros(K, 2, dtype=torch.long))
    with pytest.raises(InputError, match="use peers=All"):
        BlockMixture()(Evidence.given(loss=torch.zeros(K, 2), peers=table))
    with pytest.raises(InputError, match="standard errors from 0 up"):
        BlockMixture(-1.0)


def test_a_block_that_says_no_more_than_chance_explains_nothing() -> None:
    """Alone is at least as good as knowing nothing, less the standard errors of what a block says."""
    losses, own = unequal()
    known, chance = explained(losses, own), 1.2
    found = explained(losses, own, chance)
    for i in range(K):
        nearest = sorted((j for j in range(K) if j != i), key=lambda j: float(losses[i, j].nanmean()))[:3]
        each = [math.log(sum(math.exp(-float(losses[i, j, n, 0])) for j in nearest) / 3) for n in images_of(losses, i)]
        mean = sum(each) / len(each)
        spread = sum((one - mean) ** 2 for one in each) / max(1, len(each) - 1) / len(each)
        nothing = -len(each) * (chance - 2 * math.sqrt(spread))
        assert float(found.alone[i]) == pytest.approx(max(float(known.alone[i]), nothing), abs=1e-9)
    assert bool((found.alone > known.alone).any())


def test_without_any_validation_images_it_is_refused() -> None:
    losses = unequal()[0]
    nothing = torch.full((K, 2, 1), torch.nan)
    evidence = Evidence.given(loss=torch.zeros(K, K), image_loss=losses, own_image_loss=nothing, chance=2.0)
    with pytest.raises(InputError, match="no client has validation images"):
        BlockMixture()(evidence)


def test_one_held_out_image_a_client_spreads_as_those_of_all_do() -> None:
    own = torch.tensor([1.0, 2.0, 3.0, 6.0]).view(4, 1, 1).double()
    mean, error = _own_loss(own)
    close(mean, torch.full((4,), 3.0))
    assert bool((error == 0).all()), "all are the clients' mean"
