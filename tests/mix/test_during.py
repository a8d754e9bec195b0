"""Mixing rules that act during training, against autograd of the bound with respect to the networks."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from scool_ppl import CooperationModel, InputError
from scool_ppl.em.model import Schedule
from scool_ppl.em.state import EMInfo, EMState
from scool_ppl.infer.priors.dirac import Dirac
from scool_ppl.look.likelihoods import Ignored
from scool_ppl.look.peers import Top
from scool_ppl.mix.base import Mixing, Terms
from scool_ppl.mix.during import Pull, ServeUsers, ShareData
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Params, Plan
from tests.helpers.small import (
    RATE,
    clients,
    close,
    close_networks,
    data,
    driver,
    gradient,
    loss,
    one,
    outputs,
    uniform,
)

K = 4


def graph(seed: int = 5) -> Tensor:
    """Weights of every size, one pair without any."""
    weights = 2 * uniform(K, K, seed=seed).fill_diagonal_(0)
    weights[0, 3] = 0
    return weights


def one_round(
    mixing: Mixing, weights: Tensor, whose: Clients, steps: int = 1, seed: int = 0
) -> tuple[EMState, EMState, EMInfo]:
    """A round with a given graph: the state before and after."""
    em, state = driver(CooperationModel(Dirac(weights), Ignored(), mixing), whose, Schedule(local_steps=steps), seed)
    return state, *em.step(state)


def descended(params: Params, bound: Tensor, leaves: Params) -> Params:
    """A step up the bound of all networks at once."""
    slopes = torch.autograd.grad(bound, list(leaves.values()))
    return {name: params[name] + RATE * slope for name, slope in zip(leaves, slopes, strict=True)}


def leaves_of(params: Params) -> Params:
    return {name: value.clone().requires_grad_() for name, value in params.items()}


def case_one_two(leaves: Params, weights: Tensor, whose: Clients) -> Tensor:
    """E_q log P(D | theta, Y) of case 1.2: -sum_i [L(D_i; theta_i) + sum_j w_ij L(D_j; theta_i)]."""
    total = torch.zeros((), dtype=torch.float64)
    for i in range(K):
        total = total - loss(one(leaves, i), whose, i)
        for j in range(K):
            if i != j:
                total = total - weights[i, j] * loss(one(leaves, i), whose, j)
    return total


def same(found: Params, expected: Params, atol: float = 1e-10) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        close(found[name], value, atol)


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_shared_data_is_the_gradient_of_the_bound(executor: str) -> None:
    whose, weights = clients(K, executor=executor), graph()
    before, after, _ = one_round(ShareData(), weights, whose)
    leaves = leaves_of(before.params)
    same(after.params, descended(before.params, case_one_two(leaves, weights, whose), leaves))


def test_shared_data_of_equal_networks_is_what_mixing_updates_approximates() -> None:
    """At theta_i = theta_j the cross-gradients of SCooL (33) are those of (22); apart, they differ by their distance."""
    whose, weights = clients(K), graph()
    start, apart = whose.init(0), None
    errors = []
    for gap in (1e-2, 1e-4, 1e-5, 0.0):
        model = CooperationModel(Dirac(weights), Ignored(), ShareData())
        em, state = driver(model, whose)
        apart = state.params if apart is None else apart
        params = {name: start[name] + gap * apart[name] for name in start}
        found = em.step(state._replace(params=params))[0].params
        error = 0.0
        for i in range(K):
            slope = gradient(one(params, i), whose, i)
            for j in range(K):
                part = gradient(one(params, j), whose, j)
                slope = {name: value + weights[i, j] * part[name] for name, value in slope.items()}
            gaps = [(found[n][i] - params[n][i] + RATE * slope[n]).abs().max() for n in slope]
            error = max(error, *map(float, gaps))
        errors.append(error)
    assert errors[-1] < 1e-12
    assert errors[0] > 1e-3
    assert errors[1] == pytest.approx(10 * errors[2], rel=0.01)


def test_sampled_neighbours_are_right_on_average() -> None:
    whose, weights = clients(K), graph()
    em, state = driver(CooperationModel(Dirac(weights), Ignored(), ShareData(exact=False)), whose)
    start = em.round_start(state)
    leaves = leaves_of(state.params)
    expected = descended(state.params, case_one_two(leaves, weights, whose), leaves)
    draws: dict[str, list[Tensor]] = {name: [] for name in expected}
    for seed in range(300):
        terms = ShareData(exact=False).during(start)
        trained = whose.train(state.params, {}, Plan(epochs=0, steps=1, seed=seed, shares=terms.shares))
        for name, value in trained.params.items():
            draws[name].append(value)
    for name, value in expected.items():
        found = torch.stack(draws[name])
        error = found.std(0) / math.sqrt(len(found))
        assert bool(((found.mean(0) - value).abs() <= 5 * error + 1e-12).all())
        assert float(error.max()) > 1e-5  # they do differ
    # A round draws anew, and the same seed draws the same.
    shares = ShareData(exact=False).during(start).shares
    plans = [Plan(epochs=0, steps=1, round=round) for round in (0, 0, 1, 2, 3)]
    rounds = [whose.train(state.params, {}, plan._replace(shares=shares)).loss for plan in plans]
    assert torch.equal(rounds[0], rounds[1])
    assert any(not torch.equal(rounds[0], other) for other in rounds[2:])


@pytest.mark.parametrize("mixing", [ShareData(), ShareData(exact=False), ServeUsers(), Pull(0.3)], ids=str)
def test_terms_draw_nothing_from_the_global_generator(mixing: Mixing) -> None:
    whose = clients(K)
    before = torch.get_rng_state()
    one_round(mixing, graph(), whose)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("mixing", [ShareData(), ShareData(exact=False), ServeUsers(), Pull(0.3)], ids=str)
def test_terms_of_a_round_without_training_or_without_a_graph(mixing: Mixing) -> None:
    whose = clients(K)
    em, state = driver(CooperationModel(Dirac(graph()), Ignored(), mixing), whose, Schedule(0, 0))
    after, _ = em.step(state)
    same(after.params, state.params, 0)
    # Before there is a graph everybody trains alone.
    alone = mixing.during(em.round_start(state)._replace(weights=None, peers=None))
    assert alone == Terms()


def test_shared_data_of_several_steps_takes_the_neighbours_batch_of_the_same_step() -> None:
    whose, weights = clients(K, batch_size=3), graph()
    before, after, _ = one_round(ShareData(), weights, whose, steps=3)
    plan = whose.batches(Plan(epochs=0, steps=3))
    params = [one(before.params, i) for i in range(K)]
    for s in range(3):
        for i in range(K):
            leaves = leaves_of(params[i])
            total = torch.zeros((), dtype=torch.float64)
            for j in range(K):
                x, y = whose.federation.inputs[plan.index[j, s]].double(), plan.targets[j, s]
                each = torch.nn.functional.cross_entropy(outputs(leaves, x), y, reduction="none")
                total = total + (1.0 if i == j else weights[i, j]) * (each * plan.weight[j, s]).sum()
            slopes = torch.autograd.grad(total, list(leaves.values()))
            params[i] = {n: params[i][n] - RATE * slope for n, slope in zip(leaves, slopes, strict=True)}
    for i in range(K):
        close_networks(after.params, i, params[i])


def test_the_weight_decay_is_the_prior_of_the_networks() -> None:
    """L(D_i; theta_i) + sum_j w_ij L(D_j; theta_i) + lambda / 2 |theta_i|^2 of SCooL (22)."""
    whose = clients(K, optimizer=partial(torch.optim.SGD, lr=RATE, weight_decay=0.3))
    before, after, _ = one_round(ShareData(), graph(), whose)
    leaves = leaves_of(before.params)
    size = torch.stack([value.square().sum() for value in leaves.values()]).sum()
    same(after.params, descended(before.params, case_one_two(leaves, graph(), whose) - 0.3 / 2 * size, leaves))


def test_serving_users_is_the_gradient_of_the_mixtures_bound() -> None:
    """E_q log P(D | theta, z) = -sum_i sum_j w_ij L(D_i; theta_j): sender j answers for receiver i's data."""
    whose = clients(K)
    weights = uniform(K, K, seed=5) + 0.2
    weights = weights / weights.sum(1, keepdim=True)
    assert float((weights - weights.T).abs().max()) > 0.05
    before, after, _ = one_round(ServeUsers(), weights, whose)
    leaves = leaves_of(before.params)
    bound = torch.zeros((), dtype=torch.float64)
    for i in range(K):
        for j in range(K):
            bound = bound - weights[i, j] * loss(one(leaves, j), whose, i)
    same(after.params, descended(before.params, bound, leaves))


def test_a_network_that_nobody_uses_stays_where_it_is() -> None:
    whose = clients(K)
    weights = torch.full((K, K), 0.5, dtype=torch.float64)
    weights[:, 2] = 0
    before, after, _ = one_round(ServeUsers(), weights, whose)
    close_networks(after.params, 2, one(before.params, 2), 0)
    assert all(not torch.equal(after.params["3.weight"][i], before.params["3.weight"][i]) for i in (0, 1, 3))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_mixture_predicts_with_the_networks_of_its_row(split: str) -> None:
    whose = clients(K)
    weights = uniform(K, K, seed=6)
    weights[1, 2] = 0
    weights[3] = 0  # a client without any weight predicts alone
    em, state = driver(CooperationModel(Dirac(weights), Ignored(), ServeUsers()), whose)
    state, _ = em.step(state)
    found = em.evaluate(state, split)
    weights[3, 3] = 1
    for i in range(K):
        x, y = data(whose, i, split)
        probs = torch.zeros(len(y), 3, dtype=torch.float64)
        for j in range(K):
            probs += weights[i, j] / weights[i].sum() * outputs(one(state.params, j), x).softmax(1)
        close(found.loss[i], -probs[torch.arange(len(y)), y].log().mean())
        close(found.score[i], (probs.argmax(1) == y).double().mean())
        classes = [c for c in range(3) if c in whose.federation.classes(i).tolist()]
        own_best = torch.tensor([max(classes, key=lambda c: float(row[c])) for row in probs])
        close(found.task_score[i], (own_best == y).double().mean())


def test_a_mixture_through_a_table_of_peers_is_the_same_mixture() -> None:
    whose = clients(K)
    weights = torch.eye(K, dtype=torch.float64).roll(1, 0) + 0.5 * torch.eye(K, dtype=torch.float64)
    model = CooperationModel(Dirac(weights), Ignored(), ServeUsers())
    found = []
    for peers in (model.peers, Top(keep=1, after=1)):
        em, state = driver(model._replace(peers=peers), whose)
        for _ in range(2):
            state, _ = em.step(state)
        found.append((em.evaluate(state), state))
    assert found[1][1].moments["Y"].shape == (K, 2)
    for one_of, other in zip(*(evaluation for evaluation, _ in found), strict=True):
        close(one_of, other)
    same(found[0][1].params, found[1][1].params)


def test_the_pull_is_the_gradient_of_the_coupling() -> None:
    """-sum_i L(D_i; theta_i) - (rho / 2) sum over unordered pairs of w_ij |theta_i - theta_j|^2, w symmetric."""
    whose = clients(K)
    weights = graph() + graph().T
    before, after, _ = one_round(Pull(0.3), weights, whose)
    leaves = leaves_of(before.params)
    bound = torch.zeros((), dtype=torch.float64)
    for i in range(K):
        bound = bound - loss(one(leaves, i), whose, i)
        for j in range(i):
            gap = torch.stack([(value[i] - value[j]).square().sum() for value in leaves.values()]).sum()
            bound = bound - 0.3 / 2 * weights[i, j] * gap
    same(after.params, descended(before.params, bound, leaves))


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_the_pull_is_towards_where_the_senders_are_at_every_step(executor: str) -> None:
    whose, weights = clients(K, executor=executor), graph()
    before, after, _ = one_round(Pull(0.3), weights, whose, steps=3)
    networks = [one(before.params, i) for i in range(K)]
    for _ in range(3):
        moved = []
        for i in range(K):
            slope = gradient(networks[i], whose, i)
            for j in range(K):
                for name in slope:
                    slope[name] += 0.3 * weights[i, j] * (networks[i][name] - networks[j][name])
            moved.append({name: value - RATE * slope[name] for name, value in networks[i].items()})
        networks = moved
    for i in range(K):
        close_networks(after.params, i, networks[i])


def test_a_pull_by_degree_is_towards_the_mean_of_the_neighbours() -> None:
    whose, weights = clients(K), graph()
    degree = weights.sum(1, keepdim=True)
    expected = one_round(Pull(0.3), weights / degree, whose, steps=2)[1]
    same(one_round(Pull(0.3, by_degree=True), 7 * weights, whose, steps=2)[1].params, expected.params)


def test_a_pull_may_wait_for_the_first_look() -> None:
    whose, weights = clients(K), graph()
    before, after, _ = one_round(Pull(0.3, since=1), weights, whose)
    same(after.params, whose.train(before.params, {}, Plan(epochs=0, steps=1)).params)
    em, _ = driver(CooperationModel(Dirac(weights), Ignored(), Pull(0.3, since=1)), whose)
    again, _ = em.step(after)
    alone = whose.train(after.params, {}, Plan(epochs=0, steps=1, round=1))
    assert not torch.allclose(again.params["1.weight"], alone.params["1.weight"])


def test_a_client_that_is_not_pulled_trains_alone() -> None:
    whose, weights = clients(K), graph()
    weights[1] = 0
    before, after, _ = one_round(Pull(0.3), weights, whose)
    alone = whose.train(before.params, {}, Plan(epochs=0, steps=1, seed=0, round=0))
    close_networks(after.params, 1, one(alone.params, 1), 0)
    assert not torch.equal(after.params["1.weight"][0], alone.params["1.weight"][0])


@pytest.mark.parametrize("strength", [0.0, -1.0])
def test_a_pull_that_does_not_pull_is_refused(strength: float) -> None:
    with pytest.raises(InputError, match="expected a positive number"):
        Pull(strength)


@pytest.mark.parametrize("mixing", [ShareData(), ShareData(exact=False), ServeUsers(), Pull(0.3)], ids=str)
@pytest.mark.parametrize("num_clients", [1, 2])
def test_few_clients(mixing: Mixing, num_clients: int) -> None:
    whose = clients(num_clients)
    em, state = driver(
        CooperationModel(Dirac(1 - torch.eye(num_clients, dtype=torch.float64)), Ignored(), mixing), whose
    )
    after, _ = em.step(state)
    assert all(bool(value.isfinite().all()) for value in after.params.values())
    alone = whose.train(state.params, {}, Plan(epochs=0, steps=1, seed=0, round=0)).params
    if num_clients == 1:
        same(after.params, state.params if isinstance(mixing, ServeUsers) else alone)
    else:
        assert not torch.equal(after.params["3.weight"], alone["3.weight"])
