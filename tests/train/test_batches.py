"""Batches: fresh shuffles of every client's own images, those of others added to them, and probes."""

from __future__ import annotations

import math

import pytest
import torch

from scool_ppl.data.federation import Federation
from scool_ppl.train.batches import Batches, drawn, labelled, padded, shared, shuffled, weighted
from tests.helpers.tasks import federation as federation_of
from tests.helpers.unequal import federation, resting


def test_every_epoch_is_a_fresh_shuffle_of_the_clients_images() -> None:
    data = federation()
    plan = shuffled(data, 4, epochs=2, steps=None, seed=0, round=0)
    for client, members in enumerate(data.train):
        index, real = plan.index[client], plan.weight[client] > 0
        epochs = index[real].view(2, -1)
        for epoch in epochs:
            assert epoch.sort().values.equal(members.sort().values)
        assert len(members) < 5 or not epochs[0].equal(epochs[1])
        assert set(index.flatten().tolist()) == set(members.tolist())
        assert plan.targets[client].equal(data.labels(client, index))
        sums = plan.weight[client].sum(-1)
        torch.testing.assert_close(sums, (sums > 0).double())


def test_steps_counts_batches_for_everybody() -> None:
    data = federation()
    plan = shuffled(data, 4, epochs=1, steps=5, seed=0, round=0)
    assert plan.active.shape == (4, 5)
    assert plan.active.all()
    whole = shuffled(data, 4, epochs=1, steps=None, seed=0, round=0)
    assert whole.active.sum(1).tolist() == [4, 1, 2, 8]
    # The padding comes last, and a shorter plan is the beginning of a longer one.
    assert whole.active.double().diff(dim=1).max() <= 0
    assert plan.index[3, :, :4].equal(whole.index[3, :5])


def test_a_shuffle_is_keyed_by_seed_round_and_name() -> None:
    data = federation()

    def order(whose: Federation = data, seed: int = 0, round: int = 0) -> list[int]:
        index: list[int] = shuffled(whose, 4, epochs=1, steps=None, seed=seed, round=round).index[-1].flatten().tolist()
        return index

    assert order() == order(data.select([3])) != order(seed=1)
    assert order() != order(round=1)


def test_no_epochs_are_no_batches_and_a_client_at_rest_is_not_active() -> None:
    assert shuffled(federation(), 4, epochs=0, steps=None, seed=0, round=0).active.shape == (4, 0)
    plan = resting(shuffled(federation(), 4, epochs=1, steps=2, seed=0, round=0), 2, slice(1, 2))
    assert plan.active.tolist() == [[True, True], [True, True], [True, False], [True, True]]


def test_padding_repeats_a_rows_own_entry() -> None:
    table, mask = padded([torch.tensor([4, 7]), torch.tensor([5]), torch.tensor([], dtype=torch.long)])
    assert table.tolist() == [[4, 7], [5, 5], [0, 0]]
    assert mask.tolist() == [[True, True], [True, False], [False, False]]


def test_targets_are_what_each_row_s_client_calls_them() -> None:
    data = federation()
    index = torch.tensor([[0, 1], [0, 2], [0, 3], [0, 4]])
    assert labelled(data, index).equal(torch.stack([data.labels(i, rows) for i, rows in enumerate(index)]))
    assert len(labelled(data, index)[:, 0].unique()) > 1  # one image, several names
    plain = federation(relabel=False)
    assert labelled(plain, index).equal(plain.targets[index])
    text = federation_of("text")
    assert labelled(text, index).shape == (4, 2, text.targets.shape[1])


def test_a_probe_is_fixed_distinct_and_all_of_a_small_client() -> None:
    data = federation()
    probe = drawn(data, "train", 10, seed=0, round=3)
    assert probe.mask.sum(1).tolist() == [10, 1, 7, 10]
    for client, members in enumerate(data.train):
        chosen = probe.index[client][probe.mask[client]]
        assert len(chosen.unique()) == len(chosen)
        assert set(chosen.tolist()) <= set(members.tolist())
        assert probe.targets[client].equal(data.labels(client, probe.index[client]))
    assert drawn(data, "train", 10, seed=0, round=3).index.equal(probe.index)
    assert not drawn(data, "train", 10, seed=0, round=4).index.equal(probe.index)
    assert not drawn(data, "train", 10, seed=1, round=3).index.equal(probe.index)
    assert set(drawn(data, "test", 10, seed=0, round=3).index[0].tolist()) == set(data.test[0].tolist())


def own(sizes: list[int], steps: int = 5, width: int = 2) -> Batches:
    """Clients with as many full batches as `sizes` says; image numbers tell whose they are and from which step."""
    count = len(sizes)
    client, step = torch.arange(count)[:, None, None], torch.arange(steps)[None, :, None]
    index = 10000 * client + 10 * step + torch.arange(width)
    active = step < torch.tensor(sizes)[:, None, None]
    weight = active.double().expand(count, steps, width) / width
    return Batches(index, weight, index + 7)


def accumulated(batches: Batches, client: int, step: int) -> dict[tuple[int, int], float]:
    """(image, label) -> weight, what there is at one step."""
    total: dict[tuple[int, int], float] = {}
    for index, weight, target in zip(*(field[client, step].tolist() for field in batches[:3]), strict=True):
        if weight:
            total[index, target] = total.get((index, target), 0.0) + weight
    return total


def test_joined_batches_are_the_weighted_sum_over_clients() -> None:
    sizes = [5, 3, 1, 0]
    weights = torch.tensor([[0, 0.5, 2, 1], [1, 0, 0, 0], [0.25, 1e-9, 0, 1], [1, 1, 1, 0]], dtype=torch.float64)
    own_weight = torch.tensor([1.0, 0.0, 2.0, 1.0], dtype=torch.float64)
    joined = shared(own(sizes), weights, own_weight)
    for i in range(4):
        for s in range(5):
            expected: dict[tuple[int, int], float] = {}
            if s < sizes[i]:  # a client trains for as long as its own batches last
                for j in range(4):
                    share = float(own_weight[i] if i == j else weights[i, j])
                    if share > 1e-6 and sizes[j]:
                        first = 10000 * j + 10 * (s % sizes[j])  # who has fewer begins again
                        expected |= {(first + b, first + b + 7): share / 2 for b in range(2)}
            assert accumulated(joined, i, s) == pytest.approx(expected)


def test_one_neighbour_is_drawn_in_proportion_and_carries_all_the_weight() -> None:
    weights = torch.tensor([[0, 0.6, 1.8], [0, 0, 0], [3, 0, 0]], dtype=torch.float64)
    plan = own([400, 400, 400], steps=400)
    joined = shared(plan, weights, torch.ones(3, dtype=torch.float64), torch.Generator().manual_seed(0))
    chosen = []
    for s in range(400):
        found = accumulated(joined, 0, s)
        others = {image: weight for (image, _), weight in found.items() if weight > 0.5}
        assert list(others.values()) == pytest.approx([1.2, 1.2])
        chosen.append((min(others) - 10 * s) // 10000)
        assert sum(found.values()) == pytest.approx(3.4)
        assert sum(accumulated(joined, 1, s).values()) == pytest.approx(1)
        assert sum(accumulated(joined, 2, s).values()) == pytest.approx(4)
    assert set(chosen) == {1, 2}
    assert chosen.count(2) / 400 == pytest.approx(0.75, abs=5 * math.sqrt(0.75 * 0.25 / 400))


def test_images_count_as_they_are_said_to() -> None:
    """Wherever a shuffle has put them; behind the table they count what the client's do on average."""
    data = federation()
    plan = shuffled(data, 4, epochs=2, steps=None, seed=0, round=0)
    importance = torch.rand(4, 6, generator=torch.Generator().manual_seed(0)).double()
    found = weighted(plan, data.train, importance)
    for client, members in enumerate(data.train):
        places = {int(row): place for place, row in enumerate(members)}
        mean = importance[client, : len(members)].mean()
        for step, b in plan.weight[client].nonzero().tolist():
            place = places[int(plan.index[client, step, b])]
            counted = importance[client, place] if place < 6 else mean
            assert torch.isclose(found.weight[client, step, b], plan.weight[client, step, b] * counted)
    assert torch.equal(found.weight == 0, plan.weight == 0)
