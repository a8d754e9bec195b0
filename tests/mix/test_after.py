"""Mixing rules against double loops, and against autograd of what they are the gradient of."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.mix.after import MixModels, MixUpdates, normalised
from scool_ppl.mix.base import Alone, Mixing
from scool_ppl.train.questions import Params
from tests.helpers.memory import Allocations


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def networks(num_clients: int, seed: int) -> Params:
    """A matrix, a vector and a number per client."""
    return {
        "weight": normal(num_clients, 3, 2, seed=seed),
        "bias": normal(num_clients, 3, seed=seed + 100),
        "scale": normal(num_clients, seed=seed + 200),
    }


def everybody() -> Peers:
    """Five clients; 2 looks at nobody, 0 not at 3, nobody at itself."""
    mask = ~torch.eye(5, dtype=torch.bool)
    mask[2] = mask[0, 3] = False
    return Peers(mask)


def table() -> Peers:
    """Five clients with three candidates each, 2 looks at nobody, 4 at one."""
    senders = torch.tensor([[1, 2, 4], [0, 3, 4], [0, 1, 3], [1, 0, 2], [3, 0, 1]])
    mask = torch.ones(5, 3, dtype=torch.bool)
    mask[2] = mask[4, 1] = mask[4, 2] = False
    return Peers(mask, senders)


def with_self() -> Peers:
    """Five clients that are candidates for themselves, 2 only for itself."""
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2] = False
    mask[2, 2] = mask[0, 0] = True
    mask[0, 4] = False
    return Peers(mask)


def table_with_self() -> Peers:
    return Peers(torch.ones(5, 2, dtype=torch.bool), torch.tensor([[0, 1], [3, 1], [2, 0], [4, 3], [4, 0]]))


PEERS = {f.__name__: f() for f in (everybody, table, with_self, table_with_self)}
every_peers = pytest.mark.parametrize("peers", PEERS.values(), ids=PEERS.keys())
SAMPLES = torch.tensor([10, 500, 37, 80, 1])
RULES: list[Mixing] = [Alone(), MixUpdates(), MixUpdates(clip=2.0), MixModels(), MixModels("before")]
WEIGHED = MixUpdates(samples=SAMPLES)


def weight_table(peers: Peers, weights: Tensor) -> list[dict[int, float]]:
    """For each receiver: sender -> weight, over looked-at pairs."""
    rows: list[dict[int, float]] = [{} for _ in range(peers.num_clients)]
    for i in range(peers.mask.shape[0]):
        for m in range(peers.mask.shape[1]):
            if peers.mask[i, m]:
                rows[i][m if peers.senders is None else int(peers.senders[i, m])] = float(weights[i, m])
    return rows


def with_identity(peers: Peers, weights: Tensor, samples: Tensor | None = None) -> list[dict[int, float]]:
    """The rows of n_j (w + I) / row sum; no identity where the client is a candidate for itself."""
    rows = weight_table(peers, weights)
    for i, row in enumerate(rows):
        if i not in row:
            row[i] = 1.0
        if samples is not None:
            row.update({j: weight * float(samples[j]) for j, weight in row.items()})
        total = sum(row.values())
        rows[i] = {j: weight / total for j, weight in row.items()}
    return rows


@every_peers
@pytest.mark.parametrize("samples", [None, SAMPLES], ids=["alike", "weighed"])
@pytest.mark.parametrize("at_once", [1, 15, 2**20])
def test_mix_updates_is_the_double_loop(
    monkeypatch: pytest.MonkeyPatch, at_once: int, peers: Peers, samples: Tensor | None
) -> None:
    monkeypatch.setattr("scool_ppl.mix.after._AT_ONCE", at_once)
    before, trained, weights = networks(5, 0), networks(5, 1), uniform(*peers.mask.shape)
    mixed = MixUpdates(samples=samples)(before, trained, weights, peers)
    assert mixed.keys() == before.keys()
    rows = with_identity(peers, weights, samples)
    for name in before:
        expected = before[name].clone()
        for i, row in enumerate(rows):
            for j, weight in row.items():
                expected[i] += weight * (trained[name][j] - before[name][j])
        torch.testing.assert_close(mixed[name], expected, rtol=0, atol=1e-12)


def test_of_large_networks_there_is_one_stack_more_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.mix.after._AT_ONCE", 2**10)
    before, trained = ({"weight": normal(5, 40, 50, seed=seed)} for seed in (0, 1))
    with Allocations() as made:
        MixUpdates()(before, trained, uniform(5, 5), Peers.everybody(5))
    assert made.of_at_least(before["weight"].nbytes // 4) == 1


@every_peers
@pytest.mark.parametrize("samples", [None, SAMPLES], ids=["alike", "weighed"])
@pytest.mark.parametrize("radius", [0.5, 3.0, 1e9])
def test_clipping_is_the_double_loop(peers: Peers, radius: float, samples: Tensor | None) -> None:
    """theta_i + Delta_i + sum_j wbar_ij clip(Delta_j - Delta_i, tau), the norm over all parameters of a network."""
    before, trained, weights = networks(5, 0), networks(5, 1), uniform(*peers.mask.shape)
    mixed = MixUpdates(radius, samples)(before, trained, weights, peers)
    updates = {name: trained[name] - before[name] for name in before}
    moved = 0
    for i, row in enumerate(with_identity(peers, weights, samples)):
        expected = {name: before[name][i] + updates[name][i] for name in before}
        for j, weight in row.items():
            gap = {name: updates[name][j] - updates[name][i] for name in before}
            norm = sum(float(value.square().sum()) for value in gap.values()) ** 0.5
            moved += 0 < radius < norm
            for name in before:
                expected[name] = expected[name] + weight * gap[name] * (min(1, radius / norm) if norm else 1)
        for name in before:
            torch.testing.assert_close(mixed[name][i], expected[name], rtol=0, atol=1e-12)
    assert (moved > 0) == (radius < 1e9)
    if radius == 1e9:
        free = MixUpdates(samples=samples)(before, trained, weights, peers)
        assert all(torch.allclose(mixed[name], free[name], atol=1e-12) for name in free)


@every_peers
def test_with_clipping_no_sender_moves_a_receiver_far(peers: Peers) -> None:
    before, trained, weights = networks(5, 0), networks(5, 1), torch.ones(peers.mask.shape, dtype=torch.float64)
    own = {name: value.clone() for name, value in trained.items()}
    for value in trained.values():
        value[1] += 1e12
    mixed = MixUpdates(clip=0.1)(before, trained, weights, peers)
    for i in (0, 2, 3, 4):
        gap = sum(float((mixed[name][i] - own[name][i]).square().sum()) for name in mixed) ** 0.5
        assert gap <= 0.1 + 1e-9


def test_who_learns_from_everybody_takes_the_average_of_fedavg() -> None:
    """sum_j n_j Delta_j / sum_j n_j, written out for n = 1, 3, 6."""
    before = {"theta": torch.zeros(3, 1, dtype=torch.float64)}
    trained = {"theta": torch.tensor([[10.0], [20.0], [40.0]], dtype=torch.float64)}
    samples = torch.tensor([1, 3, 6])
    for peers in (Peers.everybody(3), Peers.everybody(3, includes_self=True)):
        mixed = MixUpdates(samples=samples)(before, trained, torch.ones(3, 3, dtype=torch.float64), peers)
        torch.testing.assert_close(mixed["theta"], torch.full((3, 1), 31.0, dtype=torch.float64), rtol=0, atol=1e-12)


@every_peers
def test_clients_of_one_size_count_alike(peers: Peers) -> None:
    before, trained, weights = networks(5, 0), networks(5, 1), uniform(*peers.mask.shape)
    alike, same = (
        rule(before, trained, weights, peers) for rule in (MixUpdates(), MixUpdates(samples=8 * torch.ones(5)))
    )
    assert all(torch.allclose(alike[name], same[name], rtol=0, atol=1e-12) for name in alike)


def test_samples_of_other_clients_are_refused() -> None:
    params = networks(5, 0)
    for peers in PEERS.values():
        with pytest.raises(InputError, match="samples has 4 entries for 5 clients"):
            MixUpdates(samples=SAMPLES[:4])(params, params, uniform(*peers.mask.shape), peers)


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan")])
def test_a_radius_is_positive(clip: float) -> None:
    with pytest.raises(InputError, match=f"clip={clip}, expected a positive radius"):
        MixUpdates(clip=clip)


@pytest.mark.parametrize("base", ["before", "trained"])
@every_peers
def test_mix_models_is_the_double_loop(peers: Peers, base: Literal["before", "trained"]) -> None:
    before, trained, weights = networks(5, 0), networks(5, 1), uniform(*peers.mask.shape)
    mixed = MixModels(base)(before, trained, weights, peers)
    rows = weight_table(peers, weights)
    for name in before:
        start = (before if base == "before" else trained)[name]
        expected = start.clone()
        for i, row in enumerate(rows):
            for j, weight in row.items():
                expected[i] += weight * (trained[name][j] - start[i])
        torch.testing.assert_close(mixed[name], expected, rtol=0, atol=1e-12)


def test_rows_that_sum_to_one_make_a_plain_average() -> None:
    peers, trained = Peers.everybody(5, includes_self=True), networks(5, 1)
    share = torch.tensor([1.0, 2.0, 3.0, 4.0, 10.0], dtype=torch.float64) / 20
    for base in ("before", "trained"):
        mixed = MixModels(base)(networks(5, 0), trained, share.expand(5, 5), peers)
        for name, value in trained.items():
            average = sum(share[j] * value[j] for j in range(5))
            for i in range(5):
                torch.testing.assert_close(mixed[name][i], average, rtol=0, atol=1e-12)


@every_peers
def test_normalised_rows_sum_to_one(peers: Peers) -> None:
    others, own = normalised(uniform(*peers.mask.shape), peers)
    torch.testing.assert_close(others.sum(1) + own, torch.ones(5, dtype=torch.float64), rtol=0, atol=1e-14)
    assert bool((others[~peers.mask] == 0).all())


def test_a_client_that_may_choose_itself_is_not_added_again() -> None:
    weights = torch.tensor([[0.2, 0.6], [0.0, 0.0]], dtype=torch.float64)
    others, own = normalised(weights, Peers.everybody(2, includes_self=True))
    # A row without any weight keeps to itself.
    torch.testing.assert_close(others, torch.tensor([[0.25, 0.75], [0.0, 0.0]], dtype=torch.float64))
    assert own.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("rule", [*RULES, WEIGHED], ids=str)
@every_peers
def test_masked_pairs_have_no_influence(peers: Peers, rule: Mixing) -> None:
    before, trained, weights = networks(5, 0), networks(5, 1), uniform(*peers.mask.shape)
    expected = rule(before, trained, weights, peers)
    for junk in (torch.nan, 1e9):
        mixed = rule(before, trained, weights.masked_fill(~peers.mask, junk), peers)
        assert all(torch.equal(mixed[name], expected[name]) for name in expected)


@pytest.mark.parametrize("rule", [*RULES, WEIGHED], ids=str)
@pytest.mark.parametrize("peers", [everybody(), table()], ids=["everybody", "table"])
@pytest.mark.parametrize("junk", [1e3, torch.nan])
def test_a_client_ignores_networks_that_it_does_not_look_at(peers: Peers, rule: Mixing, junk: float) -> None:
    before, trained, weights = networks(5, 0), networks(5, 1), uniform(*peers.mask.shape)
    expected = rule(before, trained, weights, peers)
    for sender in range(5):
        moved = {name: value.clone() for name, value in trained.items()}
        for value in moved.values():
            value[sender] += junk
        mixed = rule(before, moved, weights, peers)
        blind = [i for i, row in enumerate(weight_table(peers, weights)) if sender not in row and i != sender]
        assert all(torch.allclose(mixed[name][blind], expected[name][blind], atol=1e-9) for name in expected)


@pytest.mark.parametrize("peers", [everybody(), table()], ids=["everybody", "table"])
def test_an_isolated_client_keeps_its_own_update(peers: Peers) -> None:
    before, trained, weights = networks(5, 0), networks(5, 1), uniform(*peers.mask.shape)
    for rule in (Alone(), MixUpdates(), WEIGHED, MixModels()):
        mixed = rule(before, trained, weights, peers)
        for name, value in trained.items():
            torch.testing.assert_close(mixed[name][2], value[2], rtol=0, atol=1e-14)
    # Without its own row in the sum, nobody's network is the base: the one from before.
    mixed = MixModels("before")(before, trained, weights, peers)
    assert all(torch.equal(mixed[name][2], before[name][2]) for name in before)


@pytest.mark.parametrize("num_clients", [1, 2])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_few_clients(rule: Mixing, num_clients: int) -> None:
    before, trained = networks(num_clients, 0), networks(num_clients, 1)
    mixed = rule(before, trained, uniform(num_clients, num_clients), Peers.everybody(num_clients))
    assert all(bool(value.isfinite().all()) for value in mixed.values())
    if num_clients == 1 and rule != MixModels("before"):
        assert all(torch.allclose(mixed[name], trained[name], atol=1e-14) for name in trained)


@pytest.mark.parametrize("rule", [*RULES, WEIGHED], ids=str)
def test_mixing_keeps_precision_and_leaves_its_inputs_alone(rule: Mixing) -> None:
    before, trained = ({n: v.float() for n, v in networks(5, seed).items()} for seed in (0, 1))
    weights, peers = uniform(5, 5), everybody()
    copies = [{n: v.clone() for n, v in params.items()} for params in (before, trained)]
    mixed = rule(before, trained, weights, peers)
    assert all(value.dtype == torch.float32 and value.shape == before[name].shape for name, value in mixed.items())
    for params, copy in zip((before, trained), copies, strict=True):
        assert all(torch.equal(params[name], copy[name]) for name in params)
    assert torch.equal(weights, uniform(5, 5))


def test_an_unknown_base_is_refused() -> None:
    with pytest.raises(InputError, match="expected 'before' or 'trained'"):
        MixModels("after")  # type: ignore[arg-type]


# What the rules are the gradient of, on a federation of linear regressions with noise N(0, 1).

X, Y = normal(4, 7, 3, seed=10), normal(4, 7, seed=11)
RATE = 0.05


def mean_loss(theta: Tensor, client: int) -> Tensor:
    """L(D_j; theta) = -log P(D_j | theta) / n_j."""
    return -torch.distributions.Normal(X[client] @ theta, 1.0).log_prob(Y[client]).mean()


def locally_trained(theta: Tensor) -> Tensor:
    """One step of SGD of every client on its own data."""
    leaf = theta.clone().requires_grad_()
    optimizer = torch.optim.SGD([leaf], lr=RATE)
    torch.stack([mean_loss(leaf[i], i) for i in range(4)]).sum().backward()
    optimizer.step()
    return leaf.detach()


def bound_step(theta: Tensor, weights: Tensor) -> Tensor:
    """A step up the bound of case 1.2, E_q log P(D | theta, Y), with rate RATE / (1 + sum_j w_ij) for client i."""
    leaf = theta.clone().requires_grad_()
    bound = torch.zeros((), dtype=torch.float64)
    for i in range(4):
        bound = bound - mean_loss(leaf[i], i)
        for j in range(4):
            if i != j:
                bound = bound - weights[i, j] * mean_loss(leaf[i], j)
    (gradient,) = torch.autograd.grad(bound, leaf)
    return theta + RATE / (1 + weights.sum(1, keepdim=True)) * gradient


def mix_updates_error(theta: Tensor, weights: Tensor) -> Tensor:
    mixed = MixUpdates()({"theta": theta}, {"theta": locally_trained(theta)}, weights, Peers.everybody(4))
    return (mixed["theta"] - bound_step(theta, weights)).abs().max()


def test_mix_updates_is_a_gradient_step_of_the_bound_where_networks_are_equal() -> None:
    weights = uniform(4, 4, seed=12).fill_diagonal_(0)
    theta = normal(3, seed=13).expand(4, 3)
    assert mix_updates_error(theta, weights) < 1e-12
    # The step is not trivial: local training alone is somewhere else.
    assert (locally_trained(theta) - bound_step(theta, weights)).abs().max() > 1e-3


def test_the_error_of_mix_updates_shrinks_with_the_distance_of_the_networks() -> None:
    weights = uniform(4, 4, seed=12).fill_diagonal_(0)
    centre, apart = normal(3, seed=13), normal(4, 3, seed=14)
    errors = [float(mix_updates_error(centre + distance * apart, weights)) for distance in (1.0, 0.1, 0.01, 0.001)]
    assert errors[0] > 1e-3
    # Quadratic losses have linear gradients, so the error is proportional to the distance.
    for near, far in zip(errors[1:], errors, strict=False):
        assert near == pytest.approx(far / 10, rel=1e-6)


def test_mix_models_is_a_gradient_step_of_the_coupling_prior() -> None:
    weights, theta = uniform(4, 4, seed=12).fill_diagonal_(0), normal(4, 3, seed=14)
    trained = locally_trained(theta)
    leaf = trained.clone().requires_grad_()
    # log P(theta | Y) = -1/2 sum_ij w_ij |theta_i - theta_j|^2, the senders' networks given.
    pulls = [weights[i, j] * (leaf[i] - trained[j]).square().sum() for i in range(4) for j in range(4)]
    (gradient,) = torch.autograd.grad(-torch.stack(pulls).sum() / 2, leaf)
    mixed = MixModels()({"theta": theta}, {"theta": trained}, weights, Peers.everybody(4))
    torch.testing.assert_close(mixed["theta"], trained + gradient, rtol=0, atol=1e-12)
