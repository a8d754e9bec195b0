"""Private training against gradients by hand, plain training, the accountant, and itself by either executor."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scool_ppl.errors import InputError
from scool_ppl.tasks.categorical import Classification
from scool_ppl.tasks.weighted import balanced
from scool_ppl.train.batches import Batches
from scool_ppl.train.contract import Coupling, Plan, Pull, Shares
from scool_ppl.train.executors.private import clipped, noised, poisson
from scool_ppl.train.networks import CNN, MLP
from scool_ppl.train.privacy.account import STEPS
from scool_ppl.train.privacy.promise import Privacy
from tests.helpers.unequal import SGD, assert_agree, assert_same, both, clients, distinct, federation

NONE = Privacy(0.0, math.inf, poisson=False)
CLIPPED = Privacy(0.0, 0.3)


@pytest.fixture
def accounted() -> Any:
    return pytest.importorskip("opacus.accountants", reason="opacus is not installed")


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_without_noise_clip_and_sampling_it_is_plain_training(executor: str) -> None:
    data = federation()
    plain, network = clients(data, executor), clients(data, executor, privacy=NONE)
    start = distinct(plain)
    pull = Pull({name: torch.zeros_like(value) for name, value in start.items()}, torch.arange(4.0).double() / 10)
    state = states = None
    for round in range(2):
        plan = Plan(epochs=2, seed=1, round=round, absent=(1,) if round else (), pull=pull)
        expected, found = plain.train(start, state, plan), network.train(start, states, plan)
        state, states = expected.optimizer_state, found.optimizer_state
        assert_same(found.params, expected.params, 1e-10)
        torch.testing.assert_close(found.loss, expected.loss, rtol=0, atol=1e-10, equal_nan=True)
    assert states is not None
    assert states[STEPS].tolist() == [16, 2, 8, 32], "the absent have made no step"


@pytest.mark.parametrize("weighted", [False, True])
def test_a_clipped_gradient_is_that_of_a_loop_over_images(weighted: bool) -> None:
    random = torch.Generator().manual_seed(0)
    module = MLP(5, 3).double()
    x, y = torch.randn(6, 5, generator=random).double(), torch.randint(3, (6,), generator=random)
    weight, clip = torch.tensor([0.25] * 5 + [0.0]).double(), 2.5
    task = balanced(Classification(3), torch.tensor([2.0, 5.0, 9.0])) if weighted else Classification(3)
    scale = torch.tensor(getattr(task, "weights", (1.0, 1.0, 1.0))).double()
    leaves = dict(module.named_parameters())
    total, norms = {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}, []
    for image, label, share in zip(x, y, weight, strict=True):
        loss = scale[label] * F.cross_entropy(module(image[None]), label[None])
        found = torch.autograd.grad(loss, list(leaves.values()))
        norms.append(math.sqrt(sum(float((each**2).sum()) for each in found)))
        for name, each in zip(leaves, found, strict=True):
            total[name] += share * each * min(1.0, clip / norms[-1])
    assert min(norms) < clip < max(norms), "some are clipped and some are not"

    def network(params: dict[str, Tensor], images: Tensor) -> Tensor:
        return torch.func.functional_call(module, params, (images,))  # type: ignore[no-any-return]

    params = {name: leaf.detach() for name, leaf in leaves.items()}
    _, gradient = clipped(task, network, params, x, y, weight, clip)
    assert_same(gradient, {name: value.detach() for name, value in total.items()}, 1e-12)


@pytest.mark.parametrize("pixel", [torch.finfo(torch.float32).max, -1e30])
@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_an_image_that_no_network_can_take_moves_the_sum_by_at_most_the_clip(executor: str, pixel: float) -> None:
    """A network or a loss that is not finite would show that it is there; so would a sum of huge losses."""
    data, clip = federation(), 0.5
    spoiled = data.inputs.clone()
    spoiled[data.train[0][0]] = pixel
    options: dict[str, Any] = {"dtype": torch.float32, "batch_size": 100, "privacy": Privacy(0.0, clip, poisson=False)}
    usual, found = (clients(each, executor, **options) for each in (data, replace(data, inputs=spoiled)))
    start = usual.init(0)
    expected, without = (each.train(start, None, Plan(steps=1)) for each in (usual, found))
    assert without.loss.isfinite().all()
    assert without.loss.max() < 1e6
    change = sum(((without.params[name] - value)[0] ** 2).sum() for name, value in expected.params.items()).sqrt()
    assert 0 < change < 2 * clip * SGD.keywords["lr"] / len(data.train[0])


def test_the_noise_has_the_stated_variance_and_is_independent() -> None:
    privacy, keys, lot = Privacy(1.5, 0.5, poisson=False), torch.tensor([11, 12, 11]), torch.tensor([4, 10, 10])
    step = Batches(*(torch.zeros(3, 1) for _ in range(3)), lot, keys)
    zero = {"a": torch.zeros(3, 300, 200).double(), "b": torch.zeros(3, 40_000).double()}
    found = torch.cat([value.flatten(1) for value in noised(zero, step, privacy).values()], 1)
    count = found.shape[1]
    for each, images in zip(found, lot.tolist(), strict=True):
        expected = (1.5 * 0.5 / images) ** 2
        assert abs(float(each.var()) / expected - 1) < 5 * math.sqrt(2 / count)
        assert abs(float(each.mean())) < 5 * math.sqrt(expected / count)
    correlation = torch.corrcoef(found)
    assert abs(float(correlation[0, 1])) < 5 / math.sqrt(count)
    assert float(correlation[0, 2]) == pytest.approx(1), "noise is that of the key"
    one = noised({name: value[1] for name, value in zero.items()}, step.each(lambda field: field[1]), privacy)
    assert torch.equal(torch.cat([value.flatten() for value in one.values()]), found[1]), "alone as among others"


def test_every_image_is_drawn_with_the_stated_probability() -> None:
    data, steps = federation((20, 3)), 4000
    lot = torch.tensor([[5], [3]]).repeat(1, steps)
    drawn = poisson(data, lot, [torch.Generator().manual_seed(seed) for seed in (1, 2)])
    assert drawn.active.all(), "also with an empty batch"
    there = (drawn.index[0, :, :, None] == data.train[0]) & (drawn.weight[0] != 0)[..., None]
    counts = there.any(1).double()
    assert torch.equal(there.sum(1).amax(0), torch.ones(20).long()), "nobody twice in a batch"
    assert float((counts.mean(0) - 0.25).abs().max()) < 5 * math.sqrt(0.25 * 0.75 / steps)
    size = counts.sum(1)
    assert float(size.var()) == pytest.approx(20 * 0.25 * 0.75, rel=0.1), "images are drawn independently"
    assert (size == 0).any()
    assert ((drawn.weight[1] != 0).sum(1) == 3).all(), "who has no more than a batch is there with all images"
    assert set(drawn.weight[0].unique().tolist()) == {0.0, torch.tensor(0.2).double().item()}


@pytest.mark.parametrize("pulled", [None, "pull", "lock step"])
def test_both_executors_agree_with_noise(pulled: str | None, accounted: Any) -> None:
    from scool_ppl.graph.candidates import Peers

    stacked, loop = both(federation(), privacy=Privacy(0.7, 0.5))
    start = distinct(clients(federation()))
    pull: Pull | Coupling | None = None
    if pulled == "pull":
        pull = Pull({name: torch.ones_like(value) for name, value in start.items()}, torch.full((4,), 0.1).double())
    if pulled == "lock step":
        pull = Coupling(torch.full((4, 4), 0.05).double(), Peers.everybody(4, False))
    first = [network.train(start, None, Plan(seed=3, pull=pull)) for network in (stacked, loop)]
    plan = Plan(seed=3, round=1, absent=(0,), pull=pull)
    again = [
        network.train(each.params, each.optimizer_state, plan)
        for network, each in zip((stacked, loop), first, strict=True)
    ]
    for one, other in (first, again):
        assert_same(one.params, other.params, 1e-10)
        assert_same(one.optimizer_state, other.optimizer_state, 1e-10)
        torch.testing.assert_close(one.loss, other.loss, rtol=0, atol=1e-10, equal_nan=True)
    more = again[0].optimizer_state[STEPS] > first[0].optimizer_state[STEPS]
    assert more.tolist() == [False, True, True, True]


def test_both_executors_agree_on_a_network_of_convolutions() -> None:
    random = torch.Generator().manual_seed(0)
    data = replace(federation((6, 6)), inputs=torch.randn(24, 3, 32, 32, generator=random))
    make = partial(CNN, 3, 32, 3, width=0.1)
    found = [
        clients(data, executor, network=make, privacy=CLIPPED).train(
            clients(data, executor, network=make).init(0), None, Plan(steps=2)
        )
        for executor in ("stacked", "loop")
    ]
    assert_agree(*found)


def test_no_two_steps_share_noise_and_the_same_steps_repeat(accounted: Any) -> None:
    """Also where a round is trained twice, as that of newcomers is."""
    data = federation()
    network = clients(data, privacy=Privacy(1.0, 1.0))
    plan = Plan(epochs=2)
    first = network.batches(plan)
    later = network.batches(plan, first.active.sum(1))
    assert first.keys is not None
    assert later.keys is not None
    keys = torch.cat([each[each != 0] for each in (first.keys, later.keys)])
    assert len(keys.unique()) == len(keys) == 2 * int(first.active.sum())
    start = network.init(0)
    one, two = (network.train(start, None, plan) for _ in range(2))
    assert_same(one.params, two.params)
    other = network.train(start, None, Plan(epochs=2, seed=1)).params
    assert not any(torch.equal(one.params[name], other[name]) for name in start)


class Whitened(nn.Module):
    """Inputs that the batch decides on: alone, a sample would be divided by 0; and control flow that vmap cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(x if float(x.detach().sum()) > 0 else -x)
        return found


class Centred(nn.Sequential):
    """What an image becomes depends on the others, where there are any; vmap sees each alone."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = super().forward(x - 0.5 * x.mean(0))
        return found


def test_networks_and_plans_that_cannot_be_private() -> None:
    data = federation()
    with pytest.raises(InputError, match=r"depends on the others in its batch.*GroupNorm"):
        clients(data, network=lambda: Centred(nn.Linear(5, 3)), privacy=CLIPPED)
    with pytest.raises(InputError, match=r"single images of this network cannot be found .*GroupNorm"):
        clients(data, "loop", network=Whitened, privacy=CLIPPED)
    with pytest.raises(InputError, match=r"BatchNorm1d.*GroupNorm"):
        clients(data, network=lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3)), privacy=CLIPPED)
    with pytest.raises(InputError, match=r"privacy is 1\.0, expected a Privacy"):
        clients(data, privacy=1.0)
    network = clients(data, privacy=CLIPPED)
    shares = Shares(torch.full((4, 4), 0.1).fill_diagonal_(0), torch.ones(4))
    with pytest.raises(InputError, match="private training accounts for nobody"):
        network.train(network.init(0), None, Plan(shares=shares))
