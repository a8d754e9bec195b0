"""OneHot and BlockBernoulli: equal to torch's on hard values, linear in soft ones."""

from __future__ import annotations

import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from scool_ppl import BlockBernoulli, OneHot
from tests.helpers.small import close, normal, uniform


def simplex(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1)


def test_one_hot_equals_torch_on_hard_values() -> None:
    probs = simplex(5, 3)
    value = one_hot(torch.tensor([0, 1, 2, 0, 1]), 3).double()
    expected = torch.distributions.OneHotCategorical(probs=probs)
    for mine in (OneHot(probs), OneHot(logits=probs.log() + 7)):
        assert torch.allclose(mine.log_prob(value), expected.log_prob(value), atol=1e-12)
        assert torch.allclose(mine.entropy(), expected.entropy(), atol=1e-12)
        assert torch.allclose(mine.mean, probs)


def test_one_hot_is_linear_in_soft_values_and_does_not_renormalise_probs() -> None:
    probs = simplex(4, 3)
    hard = torch.eye(3, dtype=torch.float64)
    soft = simplex(4, 3, seed=1)
    by_hand = sum(soft[:, g] * OneHot(probs).log_prob(hard[g].expand(4, 3)) for g in range(3))
    assert torch.allclose(OneHot(probs).log_prob(soft), by_hand, atol=1e-12)
    halved = OneHot(probs / 2).log_prob(soft)
    assert torch.allclose(halved, by_hand - torch.tensor(2.0).double().log(), atol=1e-12)


def test_one_hot_zero_probability_is_harmless_where_the_value_is_zero() -> None:
    probs = torch.tensor([0.0, 1.0])
    assert OneHot(probs).log_prob(torch.tensor([0.0, 1.0])) == 0
    assert OneHot(probs).entropy() == 0
    assert torch.equal(OneHot(probs).sample((50,)), torch.tensor([0.0, 1.0]).expand(50, 2))


def test_one_hot_draws_have_the_mean() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = OneHot(torch.tensor([0.2, 0.5, 0.3])).expand([2]).sample((20_000,))
    assert draws.shape == (20_000, 2, 3)
    assert (draws.mean(0) - torch.tensor([0.2, 0.5, 0.3])).abs().max() < 0.02


def test_one_hot_needs_exactly_one_parameter() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        OneHot()
    with pytest.raises(ValueError, match="exactly one"):
        OneHot(torch.ones(2), torch.ones(2))


def test_one_hot_refuses_values_off_the_simplex() -> None:
    with pytest.raises(ValueError, match="support"):
        OneHot(torch.ones(2) / 2, validate_args=True).log_prob(torch.tensor([0.5, 0.9]))


def test_block_bernoulli_is_a_bernoulli_for_hard_memberships() -> None:
    B = torch.tensor([[0.9, 0.2], [0.3, 0.6]], dtype=torch.float64)
    z = one_hot(torch.tensor([0, 1, 1]), 2).double()
    fn = BlockBernoulli(z[:, None], z[None], B)
    expected = dist.Bernoulli(B[[0, 1, 1]][:, [0, 1, 1]])
    for y in (torch.zeros(3, 3).double(), torch.ones(3, 3).double()):
        assert torch.allclose(fn.log_prob(y), expected.log_prob(y), atol=1e-12)
    assert torch.allclose(fn.mean, expected.probs)
    assert torch.allclose(fn.entropy(), expected.entropy(), atol=1e-12)
    assert fn.batch_shape == (3, 3)


def test_block_bernoulli_is_linear_in_every_soft_value() -> None:
    B = torch.rand(3, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 0.8 + 0.1
    receiver, sender = simplex(4, 1, 3), simplex(1, 5, 3, seed=1)
    y = torch.rand(4, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    by_hand = torch.zeros(4, 5, dtype=torch.float64)
    for g in range(3):
        for h in range(3):
            edge = y * B[g, h].log() + (1 - y) * (1 - B[g, h]).log()
            by_hand += receiver[..., g] * sender[..., h] * edge
    assert torch.allclose(BlockBernoulli(receiver, sender, B).log_prob(y), by_hand, atol=1e-12)


def test_offsets_add_to_the_logits_of_every_edge_inside_the_sum_over_blocks() -> None:
    """E[log p] = sum_gh r_g s_h [y log P + (1 - y) log(1 - P)], P = sigmoid(logit B_gh + o_ij), written out."""
    B = torch.rand(3, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 0.8 + 0.1
    receiver, sender = simplex(4, 1, 3), simplex(1, 5, 3, seed=1)
    y = torch.rand(4, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    offset = 3 * torch.randn(4, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    by_hand = torch.zeros(4, 5, dtype=torch.float64)
    for g in range(3):
        for h in range(3):
            edge = dist.Bernoulli(logits=B[g, h].logit() + offset)
            at_one, at_zero = edge.log_prob(torch.ones(4, 5).double()), edge.log_prob(torch.zeros(4, 5).double())
            by_hand += receiver[..., g] * sender[..., h] * (y * at_one + (1 - y) * at_zero)
    fn = BlockBernoulli(receiver, sender, B, offset=offset)
    assert torch.allclose(fn.log_prob(y), by_hand, atol=1e-12)
    each = (B.logit() + offset[..., None, None]).sigmoid()
    assert torch.allclose(BlockBernoulli(receiver, sender, each).log_prob(y), by_hand, atol=1e-12), "a matrix each"
    assert torch.allclose(fn.expand([2, 4, 5]).log_prob(y), by_hand.expand(2, 4, 5), atol=1e-12)
    no_offset = BlockBernoulli(receiver, sender, B).log_prob(y)
    assert torch.allclose(BlockBernoulli(receiver, sender, B, 0 * offset).log_prob(y), no_offset, atol=1e-12)


def test_an_offset_beyond_all_numbers_is_no_nan() -> None:
    z = torch.eye(2).double()
    fn = BlockBernoulli(z[:, None], z[None], torch.full((2, 2), 0.5).double(), torch.full((2, 2), -1e4).double())
    assert torch.equal(fn.log_prob(torch.zeros(2, 2)), torch.zeros(2, 2).double())
    assert torch.equal(fn.log_prob(torch.ones(2, 2)), torch.full((2, 2), -1e4).double())
    assert torch.equal(fn.sample(), torch.zeros(2, 2).double())


def test_offsets_of_other_edges_are_refused() -> None:
    z = simplex(4, 2)
    with pytest.raises(ValueError, match=r"\(4, 1\), \(1, 4\), \(\), \(3, 3\) by receiver, sender, B and offset"):
        BlockBernoulli(z[:, None], z[None], torch.full((2, 2), 0.5).double(), torch.zeros(3, 3))


def test_block_bernoulli_draws_and_expands() -> None:
    z = torch.eye(2)
    fn = BlockBernoulli(z[:, None], z[None], torch.tensor([[0.9, 0.2], [0.3, 0.6]]))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = fn.expand([3, 2, 2]).sample((5_000,))
    assert draws.shape == (5_000, 3, 2, 2)
    assert (draws.mean((0, 1)) - fn.mean).abs().max() < 0.02


def test_block_bernoulli_refuses_memberships_of_other_blocks() -> None:
    with pytest.raises(ValueError, match="2 and 2 blocks"):
        BlockBernoulli(torch.ones(1, 2), torch.ones(1, 2), torch.ones(3, 3) / 2)


@pytest.mark.parametrize(
    "fn",
    [
        OneHot(logits=normal(4, 3)),
        OneHot(probs=uniform(3)),
        BlockBernoulli(normal(4, 1, 2).softmax(-1), normal(1, 5, 2).softmax(-1), uniform(2, 2)),
    ],
    ids=["logits", "probabilities", "edges"],
)
@pytest.mark.parametrize("expand", [True, False])
def test_the_support_is_enumerated_as_pyro_asks(fn: dist.TorchDistribution, expand: bool) -> None:
    values = fn.enumerate_support(expand=expand)
    size = fn.event_shape[0] if fn.event_shape else 2
    batch = fn.batch_shape if expand else [1] * len(fn.batch_shape)
    assert values.shape == (size, *batch, *fn.event_shape)
    assert fn.has_enumerate_support
    assert fn.log_prob(values).shape == (size, *fn.batch_shape)
    flat = values.expand(size, *fn.batch_shape, *fn.event_shape).flatten(1)
    assert len({tuple(row.tolist()) for row in flat}) == size
    if isinstance(fn, OneHot):
        close(fn.log_probs.movedim(-1, 0), fn.log_prob(values))
