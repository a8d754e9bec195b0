"""Box: flat where nothing is said, and a density of one's own where something is."""

from __future__ import annotations

import pytest
import torch
from pyro.infer import Predictive
from torch import Tensor

from scool_ppl import (
    InputError,
)
from scool_ppl.infer.moments import log_joint
from scool_ppl.infer.priors.box import Box
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import (
    some_masked,
)
from tests.helpers.small import uniform


def test_the_box_is_flat() -> None:
    prior, evidence = Box(4, start=0.3).double(), evidence_of(random_log_lik(4), some_masked(4))
    graph = uniform(4, 4, seed=1)
    graph[0, 1], graph[1, 0] = 0.0, 1.0  # both ends belong to it
    values = []
    for masked in (graph, torch.where(some_masked(4), graph, 0.77)):
        leaf = masked.clone().requires_grad_()
        value, _ = log_joint(prior, {"Y": leaf}, evidence)
        (slope,) = torch.autograd.grad(value, leaf, allow_unused=True) if value.requires_grad else (None,)
        assert slope is None or not bool(slope.any())
        values.append(float(value))
    assert values[0] == values[1] == pytest.approx(0, abs=1e-4)
    initial = prior.initial_graph()
    assert initial.dtype == torch.float64
    assert torch.equal(initial, torch.full((4, 4), 0.3, dtype=torch.float64).fill_diagonal_(0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = Predictive(prior, num_samples=400, return_sites=["Y"])(evidence)["Y"].view(400, 4, 4)
    inside = drawn[:, some_masked(4)]
    assert float(inside.min()) >= 0
    assert float(inside.max()) <= 1 + 1e-6
    assert float(inside.mean()) == pytest.approx(0.5, abs=5 * (1 / 12 / inside.numel()) ** 0.5)


class Ridge(Box):
    """A density that sees the graph: masked pairs must be 0 in it."""

    def log_density(self, graph: Tensor) -> Tensor:
        return -graph.sum()


def test_a_boxs_own_density_counts_and_sees_no_masked_pair() -> None:
    evidence = evidence_of(random_log_lik(4), some_masked(4))
    graph = uniform(4, 4, seed=1)
    mask = some_masked(4)
    for junk in (0.0, 0.9):
        value, _ = log_joint(Ridge(4).double(), {"Y": torch.where(mask, graph, junk)}, evidence)
        assert float(value) == pytest.approx(-float(graph[mask].sum()), abs=1e-4)


@pytest.mark.parametrize("start", [-0.1, 1.1])
def test_a_start_outside_the_box_is_refused(start: float) -> None:
    with pytest.raises(InputError, match=r"expected a weight in \[0, 1\]"):
        Box(3, start)
