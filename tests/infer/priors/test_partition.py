"""Partition: a Chinese restaurant's probabilities, and graphs of those who sit together."""

from __future__ import annotations

import math

import pytest
import torch

from scool_ppl.errors import InputError
from scool_ppl.infer.moments import log_joint
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.priors.partition import Partition, cuts
from scool_ppl.look.evidence import Evidence
from tests.helpers.partitions import partitions

K = 5


def evidence_of(num_clients: int) -> Evidence:
    losses = torch.rand(num_clients, num_clients, 3, 1, generator=torch.Generator().manual_seed(0))
    return Evidence.given(loss=losses.mean((2, 3)), image_loss=losses)


def configuration(labels: tuple[int, ...], heard: list[float]) -> dict[str, torch.Tensor]:
    z = torch.nn.functional.one_hot(torch.tensor(labels), len(labels)).double()
    return {"z": z, "heard": torch.tensor(heard, dtype=torch.float64)}


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 4.0])
def test_the_probabilities_of_all_partitions_sum_to_one(alpha: float) -> None:
    """There are 52 of five clients; each is as probable as the restaurant's seating, one client after the other."""
    prior = Partition(K, alpha=alpha, doubt=0.2)
    joint, evidence = Joint(prior, torch.zeros(K, K)), evidence_of(K)
    total = 0.0
    for labels in partitions(K):
        found = math.exp(float(log_joint(joint, configuration(labels, [1.0] * K), evidence)[0])) / 0.8**K
        seated = 1.0
        for place, label in enumerate(labels):
            before = labels[:place].count(label)
            seated *= (before or alpha) / (alpha + place)
        assert found == pytest.approx(seated, rel=1e-9)
        total += found
    assert total == pytest.approx(1)


def test_who_sits_together_and_is_heard_is_learned_from() -> None:
    prior = Partition(4)
    heard = [1.0, 0.0, 1.0, 1.0]
    _, trace = log_joint(Joint(prior, torch.zeros(4, 4)), configuration((0, 0, 0, 2), heard), evidence_of(4))
    expected = [[0, 0, 1, 0], [1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert trace.nodes["Y"]["value"].tolist() == expected


def test_a_client_who_is_absent_sits_nowhere() -> None:
    evidence = evidence_of(4)
    evidence.present = torch.tensor([True, True, False, True])
    evidence.peers = evidence.planned.among(evidence.present)
    prior, smaller = Partition(4, alpha=0.5), Partition(3, alpha=0.5)
    found, trace = log_joint(Joint(prior, torch.zeros(4, 4)), configuration((0, 0, 0, 1), [1.0] * 4), evidence)
    expected, _ = log_joint(Joint(smaller, torch.zeros(3, 3)), configuration((0, 0, 1), [1.0] * 3), evidence_of(3))
    assert float(found) == pytest.approx(float(expected))
    assert trace.nodes["Y"]["value"][2].sum() == trace.nodes["Y"]["value"][:, 2].sum() == 0


def test_it_begins_at_the_cuts_of_a_tree_of_losses() -> None:
    groups = torch.tensor([0, 0, 1, 1, 1, 2])
    losses = torch.where(groups[:, None] == groups, 0.5, 4.0)[..., None, None].expand(6, 6, 2, 1)
    evidence = Evidence.given(loss=losses.mean((2, 3)), image_loss=losses)
    starts = Partition(6).starts(evidence, None, torch.Generator())
    three = [start["z"] for start in starts if int((start["z"].sum(0) > 0).sum()) == 3]
    assert len(starts) == len(cuts(6))
    assert torch.equal(three[0] @ three[0].T, (groups[:, None] == groups).double())
    assert cuts(1) == [1]
    assert cuts(20) == [*range(1, 13), 15, 18, 20]


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="alpha=0"):
        Partition(3, alpha=0.0)
    with pytest.raises(InputError, match="doubt=1"):
        Partition(3, doubt=1.0)
