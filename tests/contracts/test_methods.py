"""The methods of the papers: every update that they print, against loops over clients and autograd."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from scool_ppl import (
    CooperationModel,
    GraphPrior,
    InputError,
    NaturalGradient,
    ProjectedGradient,
    SVIStep,
    load_model,
)
from scool_ppl.em.em import EM
from scool_ppl.em.model import Schedule
from scool_ppl.em.state import EMInfo, EMState
from scool_ppl.infer.priors.box import Box
from scool_ppl.look.evidence import Evidence
from scool_ppl.look.likelihoods import GradientAlignment
from scool_ppl.mix.base import Alone
from scool_ppl.train.clients import Clients
from tests.helpers.small import (
    ONE_STEP,
    RATE,
    clients,
    close,
    close_networks,
    data,
    distance,
    driver,
    gradient,
    loss,
    networks,
    normal,
    one,
    outputs,
)

K = 4
SCALE = 7.0  # of the updates, before they are encoded


def built(name: str, whose: Clients, **choices: Any) -> CooperationModel:
    return load_model(name, whose.num_clients, federation=whose.federation, **choices)


def stepped(name: str, whose: Clients, rounds: int = 1, **choices: Any) -> list[tuple[EMState, EMInfo]]:
    """Rounds from networks that differ; the first entry is the state before (its info is that of the first round)."""
    em, state = driver(built(name, whose, **choices), whose)
    history = []
    for _ in range(rounds):
        before = state
        state, info = em.step(before)
        history.append((before, info))
    return [*history, (state, info)]


def sgd(network: dict[str, Tensor], slope: dict[str, Tensor], rate: float = RATE) -> dict[str, Tensor]:
    return {name: value - rate * slope[name] for name, value in network.items()}


def off_diagonal(size: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(size) for j in range(size) if i != j]


# FedFomo.


def first_order(before: Any, trained: Any, whose: Clients, norm: float) -> Tensor:
    """s_ij by a plain loop over networks."""
    gain = torch.zeros(K, K, dtype=torch.float64)
    for i in range(K):
        own = loss(one(before, i), whose, i, "validation")
        for j in range(K):
            better = own - loss(one(trained, j), whose, i, "validation")
            gain[i, j] = better / distance(one(trained, j), one(before, i), norm)
    return gain


@pytest.mark.parametrize("norm", [2.0, 1.0])
@pytest.mark.parametrize("fallback", ["before", "trained"])
def test_fedfomo_takes_what_helps_on_validation_data(norm: float, fallback: str) -> None:
    whose = clients(K)
    em, state = driver(built("fedfomo", whose, count=None, norm=norm, fallback=fallback), whose)
    # Client 2 is where nothing helps: at the minimum of its own validation loss.
    best = one(state.params, 2)
    for _ in range(400):
        best = sgd(best, gradient(best, whose, 2, "validation"), 0.3)
    for name, value in best.items():
        state.params[name][2] = value
    after, info = em.step(state)
    gain = first_order(state.params, info.trained, whose, norm).clamp(min=0)
    assert not bool(gain[2].any())
    total = gain.sum(1, keepdim=True)
    helped = total[:, 0] > 0
    assert int(helped.sum()) >= 2
    assert bool((gain[helped] == 0).any())  # somebody is of no use, or max(s, 0) would not show
    stays = torch.eye(K, dtype=torch.float64) * float(fallback == "trained")
    expected = torch.where(helped[:, None], gain / total, stays)
    close(after.moments["Y"], expected)
    for i in range(K):
        mixed = {name: value.clone() for name, value in one(state.params, i).items()}
        for j in range(K):
            for name in mixed:
                mixed[name] += expected[i, j] * (info.trained[name][j] - state.params[name][i])
        close_networks(after.params, i, mixed)
    close_networks(after.params, 2, best if fallback == "before" else one(info.trained, 2))


def test_fedfomo_looks_at_few_and_remembers_who_helped() -> None:
    whose = clients(6)
    rounds = stepped("fedfomo", whose, 3, count=2, epsilon=0.0)
    total = torch.zeros(6, 6, dtype=torch.float64)
    for (before, _), (after, _) in itertools.pairwise(rounds):
        assert after.peers is not None
        looked = after.peers.mask
        assert looked.diagonal().all()
        assert looked.sum(1).tolist() == [3] * 6
        close(after.memory["affinity"].value, total)
        for i in range(6):
            others = [j for j in range(6) if j != i]
            least = min(float(total[i, j]) for j in others if looked[i, j])
            assert all(float(total[i, j]) <= least + 1e-8 for j in others if not looked[i, j])
        assert not bool(after.moments["Y"][~looked].any())
        assert before.round == after.round - 1
        total = total + after.moments["Y"]
    assert bool((total > 0).any())


def test_fedfomo_leaves_a_network_that_has_diverged() -> None:
    whose = clients(K)
    em, state = driver(built("fedfomo", whose, count=None), whose)
    state.params["1.weight"][1] = torch.nan
    after, info = em.step(state)
    graph = after.moments["Y"]
    gain = first_order(state.params, info.trained, whose, 2.0).nan_to_num(0).clamp(min=0)
    assert bool((gain.sum(1)[[0, 2, 3]] > 0).all())
    close(graph, torch.where(gain.sum(1, keepdim=True) > 0, gain / gain.sum(1, keepdim=True), 0.0))
    assert not bool(graph[:, 1].any())
    assert all(bool(value[[0, 2, 3]].isfinite().all()) for value in after.params.values())


# CoBo.


def alignment(params: Any, whose: Clients) -> Tensor:
    """a_ij at the midpoint by autograd, pair by pair."""
    size = whose.num_clients
    aligned = torch.zeros(size, size, dtype=torch.float64)
    for i, j in off_diagonal(size):
        middle = {name: (value[i] + value[j]) / 2 for name, value in params.items()}
        mine, theirs = gradient(middle, whose, i), gradient(middle, whose, j)
        aligned[i, j] = sum((mine[name] * theirs[name]).sum() for name in middle)
    return aligned


def test_cobo_moves_the_graph_along_the_alignment_within_the_box() -> None:
    whose = clients(K)
    rounds = stepped("cobo", whose, 3, gamma=2.0, start=0.5)
    graph = torch.full((K, K), 0.5, dtype=torch.float64).fill_diagonal_(0)
    inside = clipped = False
    for (_, info), (after, _) in itertools.pairwise(rounds):
        moved = graph + 2.0 * alignment(info.trained, whose)
        graph = moved.clamp(0, 1)
        clipped |= bool((moved != graph).any())
        inside |= bool(((graph > 0) & (graph < 1)).any())
        close(after.moments["Y"], graph)
        close(after.moments["Y"], after.moments["Y"].T)
    assert inside
    assert clipped


def test_cobo_pulls_as_printed() -> None:
    """(3) at every step of a round, every theta_k where it is at that step; no pull before the first look."""
    whose = clients(K)
    em, state = driver(built("cobo", whose, rho=0.3, gamma=0.05), whose, Schedule(local_steps=3))
    weights = torch.zeros(K, K, dtype=torch.float64)
    for _ in range(3):
        networks = [one(state.params, i) for i in range(K)]
        for _ in range(3):
            networks = [sgd(networks[i], pulled(networks, i, weights, 0.3, whose)) for i in range(K)]
        state, info = em.step(state)
        for i in range(K):
            close_networks(state.params, i, networks[i])
            close_networks(info.trained, i, networks[i])
        weights = state.moments["Y"]
        assert bool(((weights > 0) & (weights < 1)).any())


def pulled(networks: list[dict[str, Tensor]], i: int, weights: Tensor, rho: float, whose: Clients) -> dict[str, Tensor]:
    """grad f_i(x_i) + rho sum_k w_ik (x_i - x_k)."""
    slope = gradient(networks[i], whose, i)
    for k in range(len(networks)):
        for name in slope:
            slope[name] += rho * weights[i, k] * (networks[i][name] - networks[k][name])
    return slope


def test_cobos_pairs_that_are_not_looked_at_keep_their_weight() -> None:
    whose = clients(6)
    rounds = stepped("cobo", whose, 3, gamma=1.0, start=0.5, pairs="clients")
    graph = torch.full((6, 6), 0.5, dtype=torch.float64).fill_diagonal_(0)
    for (_, info), (after, _) in itertools.pairwise(rounds):
        assert after.peers is not None
        assert after.peers.looked is not None
        looked = after.peers.looked
        assert 0 < int(looked.sum()) < 30
        moved = (graph + alignment(info.trained, whose)).clamp(0, 1)
        assert bool((moved != graph)[looked].any())
        graph = torch.where(looked, moved, graph)
        close(after.moments["Y"], graph)
        sent = looked | (graph > 0)  # looked at, or pulled along
        assert torch.equal(info.bytes_received, sent.sum(1) * float(whose.bytes_per_model))


def test_cobo_on_the_simplex_projects_rows() -> None:
    whose = clients(K)
    (before, info), (after, _) = stepped("cobo", whose, gamma=3.0, domain="simplex")
    start = (torch.ones(K, K, dtype=torch.float64) / (K - 1)).fill_diagonal_(0)
    moved = start + 3.0 * alignment(info.trained, whose)
    graph = after.moments["Y"]
    assert before.moments["Y"].allclose(start)
    for i in range(K):
        others = [j for j in range(K) if j != i]
        close(graph[i, others].sum(), torch.tensor(1.0))
        # The projection takes the same off all entries that stay positive, and no less than their all from the others.
        taken = (moved - graph)[i, others]
        positive = graph[i, others] > 0
        close(taken[positive], taken[positive][:1].expand(int(positive.sum())))
        assert bool((moved[i, others][~positive] <= taken[positive][0] + 1e-12).all())
    assert not bool(graph.diagonal().any())


class Coin(GraphPrior):
    """Y_ij ~ Bernoulli(1/2)."""

    def model(self, evidence: Evidence) -> Tensor:
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(torch.tensor(0.5, dtype=torch.float64)))


def test_cobos_choice_is_the_limit_of_a_fair_coin() -> None:
    whose = clients(K)
    aligned: Tensor | None = None
    errors = []
    for temperature in (1.0, 0.1, 1e-2, 1e-4, 1e-6):
        model = CooperationModel(Coin(K), GradientAlignment(temperature), Alone())
        em, state = driver(model, whose)
        after, info = em.step(state)
        aligned = alignment(info.trained, whose) if aligned is None else aligned
        off = ~torch.eye(K, dtype=torch.bool)
        close(after.moments["Y"][off], (aligned / temperature).sigmoid()[off])
        errors.append(float((after.moments["Y"] - (aligned > 0).double())[off].abs().max()))
    assert errors[0] > 0.3
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-12
    # Steps long enough take CoBo's box to the same corner.
    box = CooperationModel(Box(K), GradientAlignment(), Alone(), e_step=ProjectedGradient(1e6))
    em, state = driver(box, whose)
    assert torch.equal(em.step(state)[0].moments["Y"][off], (aligned > 0).double()[off])


# L2C and meta-L2C.


def mixed_validation(before: Any, trained: Any, graph: Tensor, whose: Clients) -> Tensor:
    """sum_i V_i(theta_i^t + sum_j w_ij Delta_j) by loops, differentiable in w."""
    total = torch.zeros((), dtype=torch.float64)
    for i in range(whose.num_clients):
        network = one(before, i)
        for j in range(whose.num_clients):
            network = {n: v + graph[i, j] * (trained[n][j] - before[n][j]) for n, v in network.items()}
        total = total + loss(network, whose, i, "validation")
    return total


def test_l2c_moves_alpha_down_the_validation_loss_of_the_mixed_networks() -> None:
    whose = clients(K)
    model = built("l2c", whose)
    plain = NaturalGradient(sweeps=1, optimizer=partial(torch.optim.SGD, lr=5.0), optimizer_steps=1)
    em, state = driver(model._replace(e_step=plain), whose)
    for _ in range(2):
        alpha = state.prior["alpha"].clone().requires_grad_()
        before = state.params
        state, info = em.step(state)
        value = mixed_validation(before, info.trained, alpha.softmax(1), whose) + 0.01 / 2 * alpha.square().sum()
        (slope,) = torch.autograd.grad(value, alpha)
        assert float(slope.abs().max()) > 1e-4
        close(state.prior["alpha"], alpha - 5.0 * slope)
        # Lines 13 to 18 of Algorithm 1: the round mixes by the alpha that it began with, then alpha moves.
        graph = alpha.softmax(1).detach()
        close(state.moments["Y"], graph)
        for i in range(K):
            update = {n: torch.einsum("j,j...->...", graph[i], info.trained[n] - before[n]) for n in before}
            close_networks(state.params, i, {n: before[n][i] + update[n] for n in before})


def test_l2cs_adam_is_that_of_the_paper() -> None:
    whose = clients(K)
    (before, info), (after, _) = stepped("l2c", whose, steps=5)
    alpha = torch.zeros(K, K, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([alpha], lr=0.1, weight_decay=0.01)
    for _ in range(5):
        adam.zero_grad()
        mixed_validation(before.params, info.trained, alpha.softmax(1), whose).backward()
        adam.step()
    close(after.prior["alpha"], alpha, 1e-8)
    close(before.prior["alpha"], torch.zeros(K, K))
    close(after.moments["Y"], torch.full((K, K), 1 / K))


def test_l2c_drops_the_weakest_peers_but_never_the_client_itself() -> None:
    whose = clients(5)
    em, state = driver(built("l2c", whose, keep=2, after=1, steps=1), whose)
    state, _ = em.step(state)
    # Everybody thinks little of itself.
    state.prior["alpha"].fill_diagonal_(-5)
    state = state._replace(moments={"Y": state.prior["alpha"].softmax(1)})
    weights = state.moments["Y"]
    state, _ = em.step(state)
    assert state.peers is not None
    assert state.peers.senders is not None
    for i in range(5):
        ranked = sorted((j for j in range(5) if j != i), key=lambda j: -float(weights[i, j]))
        assert set(state.peers.senders[i].tolist()) == {i, *ranked[:2]}
    close(state.moments["Y"].sum(1), torch.ones(5))


def encoded(encoder: dict[str, Tensor], updates: dict[str, Tensor], scale: float) -> Tensor:
    """E(u) of one client: a two-layer network per layer on every filter and its bias, over the root of their number."""
    parts = []
    for layer in ("1", "3"):
        first, second = (
            (encoder[f"layers.{layer}.{place}.weight"], encoder[f"layers.{layer}.{place}.bias"]) for place in (0, 2)
        )
        for weight, bias in zip(updates[f"{layer}.weight"], updates[f"{layer}.bias"], strict=True):
            u = scale * torch.cat([weight, bias[None]])
            parts.append(second[0] @ (first[0] @ u + first[1]).clamp(min=0) + second[1])
    return torch.cat(parts) / len(parts) ** 0.5


def test_meta_l2cs_encoder_works_for_other_clients_as_it_is(tmp_path: Path) -> None:
    whose, path = clients(K), str(tmp_path / "encoder.safetensors")
    em, state = driver(built("meta_l2c", whose, scale=SCALE, learning_rate=0.01), whose)
    start = {name: value.clone() for name, value in state.prior.items()}
    for _ in range(2):
        state, _ = em.step(state)
    em.model.prior.encoder.save(path)  # type: ignore[operator,union-attr]
    learned = {name.removeprefix("encoder."): value for name, value in state.prior.items()}
    assert any(not torch.equal(value, start[f"encoder.{name}"]) for name, value in learned.items())

    others = clients(6, optimizer=partial(torch.optim.SGD, lr=0.3))
    em = EM(built("meta_l2c", others, encoder=path, frozen=True, scale=SCALE), others, ONE_STEP, seed=7)
    state = em.init()
    for _ in range(2):
        before, (state, info) = state, em.step(state)
        for name, value in learned.items():
            assert torch.equal(state.prior[f"encoder.{name}"], value)
        codes = torch.stack(
            [
                encoded(learned, {n: info.trained[n][i] - before.initial[n][i] for n in before.initial}, SCALE)
                for i in range(6)
            ]
        )
        graph = (codes @ codes.T).softmax(1)
        assert float((graph - 1 / 6).abs().max()) > 1e-4
        close(state.moments["Y"], graph)
    # Without `frozen` it goes on learning from where it was.
    em, state = driver(built("meta_l2c", others, encoder=path, learning_rate=0.01), others)
    assert all(torch.equal(state.prior[f"encoder.{name}"], value) for name, value in learned.items())
    state, _ = em.step(state)
    assert any(not torch.equal(state.prior[f"encoder.{name}"], value) for name, value in learned.items())


def test_meta_l2cs_encoder_follows_the_validation_loss() -> None:
    whose = clients(3)
    model = built("meta_l2c", whose, scale=SCALE)
    plain = NaturalGradient(sweeps=1, optimizer=partial(torch.optim.SGD, lr=0.5), optimizer_steps=1)
    em, state = driver(model._replace(e_step=plain), whose)
    after, info = em.step(state)
    leaves = {name.removeprefix("encoder."): value.clone().requires_grad_() for name, value in state.prior.items()}
    updates = {name: value - state.initial[name] for name, value in info.trained.items()}
    codes = torch.stack([encoded(leaves, one(updates, i), SCALE) for i in range(3)])
    graph = (codes @ codes.T).softmax(1)
    close(after.moments["Y"], graph)  # of the encoder as it was: the round mixes by it
    value = mixed_validation(state.params, info.trained, graph, whose)
    slopes = torch.autograd.grad(value, list(leaves.values()))
    assert max(float(slope.abs().max()) for slope in slopes) > 1e-4
    for (name, leaf), slope in zip(leaves.items(), slopes, strict=True):
        close(after.prior[f"encoder.{name}"], leaf - 0.5 * slope)


def test_an_encoder_for_other_networks_or_no_encoder_is_refused(tmp_path: Path) -> None:
    whose, path = clients(K), tmp_path / "encoder.safetensors"
    EM(built("meta_l2c", whose), whose, ONE_STEP).model.prior.encoder.save(path)  # type: ignore[operator,union-attr]
    wider = clients(K, hidden=5)
    with pytest.raises(InputError, match="use the network that it was trained with"):
        EM(built("meta_l2c", wider, encoder=str(path)), wider, ONE_STEP)
    path.write_text("no encoder")
    with pytest.raises(InputError, match="cannot read an encoder"):
        built("meta_l2c", whose, encoder=str(path))


# D-PSGD.

TOPOLOGIES = ("ring", "group-ring", "bipartite", "complete")


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("num_clients", [1, 2, 3, 5, 6, 9])
def test_dpsgd_gossips_along_a_connected_doubly_stochastic_graph(topology: str, num_clients: int) -> None:
    graph = load_model("dpsgd", num_clients, topology=topology, groups=3).prior.initial_graph()
    assert graph is not None
    close(graph, graph.T, 0)
    assert bool((graph >= 0).all())
    close(graph.sum(1), torch.ones(num_clients), 1e-14)
    close(graph.sum(0), torch.ones(num_clients), 1e-14)
    # Gossip reaches everybody: what all have in the end is the average.
    close(torch.linalg.matrix_power(graph, 2000), torch.full_like(graph, 1 / num_clients), 1e-8)


def test_dpsgd_links_whom_it_says() -> None:
    def linked(topology: str, groups: int = 4) -> set[tuple[int, int]]:
        graph = load_model("dpsgd", 6, topology=topology, groups=groups).prior.initial_graph()
        assert graph is not None
        return {(i, j) for i, j in off_diagonal(6) if i < j and graph[i, j] > 0}

    assert linked("ring") == {(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)}
    assert linked("complete") == {(i, j) for i in range(6) for j in range(i + 1, 6)}
    assert linked("bipartite") == {(i, j) for i in range(6) for j in range(i + 1, 6) if (i + j) % 2}
    assert linked("group-ring", 2) == {(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (0, 3)}


def test_dpsgd_gossips_at_every_step_of_a_round() -> None:
    """(16) at each of three steps: with neighbours held for the round it would pull back to its beginning."""
    whose = clients(5)
    em, state = driver(built("dpsgd", whose, mix="before", clients_rate=RATE), whose, Schedule(local_steps=3))
    networks = [one(state.params, i) for i in range(5)]
    state, _ = em.step(state)
    graph = state.moments["Y"]
    for _ in range(3):
        slopes = [gradient(network, whose, i) for i, network in enumerate(networks)]
        mixed = [
            {name: sum(graph[i, j] * networks[j][name] for j in range(5)) for name in networks[i]} for i in range(5)
        ]
        networks = [sgd(mixed[i], slopes[i]) for i in range(5)]
    for i in range(5):
        close_networks(state.params, i, networks[i])


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("mix", ["before", "after"])
def test_dpsgd_is_a_gossip_step(topology: str, mix: str) -> None:
    whose = clients(5)
    rounds = stepped("dpsgd", whose, 2, topology=topology, mix=mix, clients_rate=RATE)
    for (before, _), (after, _) in itertools.pairwise(rounds):
        graph = after.moments["Y"]
        for i in range(5):
            expected = {name: torch.zeros_like(value) for name, value in one(before.params, i).items()}
            for j in range(5):
                theirs = one(before.params, j)
                theirs = sgd(theirs, gradient(theirs, whose, j)) if mix == "after" else theirs
                for name in expected:
                    expected[name] += graph[i, j] * theirs[name]
            if mix == "before":
                expected = sgd(expected, gradient(one(before.params, i), whose, i))
            close_networks(after.params, i, expected)


# FedeRiCo.


def received(params: Any, whose: Clients) -> Tensor:
    """loss[j, i] as [receiver i, sender j]: model j on client i's data."""
    size = whose.num_clients
    return torch.stack([torch.stack([loss(one(params, j), whose, i) for j in range(size)]) for i in range(size)])


def test_federico_accumulates_the_loss_where_the_prior_is_learned() -> None:
    whose = clients(K)
    rounds = stepped("federico", whose, 3, learn=True, n_eff=1.5)
    total = torch.zeros(K, K, dtype=torch.float64)
    log_pi = torch.zeros(K, K, dtype=torch.float64)
    for (_, info), (after, _) in itertools.pairwise(rounds):
        now = received(info.trained, whose)
        total = total + now
        close(after.moments["Y"], (log_pi - 1.5 * now).softmax(1))
        close(after.moments["Y"], (-1.5 * total).softmax(1))
        log_pi = after.prior["log_pi"]
        close(log_pi.exp(), after.moments["Y"])


def test_federico_averages_the_loss_and_masks_what_it_never_saw() -> None:
    whose = clients(6)
    rounds = stepped("federico", whose, 4, count=2, average=0.6, n_eff=2.0, epsilon=0.5)
    average: dict[tuple[int, int], float] = {}
    fewer = 0
    for (_, info), (after, _) in itertools.pairwise(rounds):
        assert after.peers is not None
        assert after.peers.looked is not None
        now = received(info.trained, whose)
        for i, j in after.peers.looked.nonzero().tolist():
            last = average.get((i, j))
            average[i, j] = float(now[i, j]) if last is None else 0.4 * last + 0.6 * float(now[i, j])
        assert after.peers.looked.sum(1).tolist() == [3] * 6
        fewer += len(average) < 36
        assert {tuple(pair) for pair in after.peers.mask.nonzero().tolist()} == set(average)
        for i in range(6):
            seen = [j for j in range(6) if (i, j) in average]
            unseen = [j for j in range(6) if j not in seen]
            row = torch.tensor([-2.0 * average[i, j] for j in seen], dtype=torch.float64).softmax(0)
            close(after.moments["Y"][i, seen], row)
            assert not bool(after.moments["Y"][i, unseen].any())
    assert fewer >= 2


def test_federico_without_an_average_keeps_the_last_look() -> None:
    """A pair that is not looked at again must not count as a loss of 0, which is a perfect network."""
    whose = clients(6)
    rounds = stepped("federico", whose, 3, count=1, average=None, n_eff=2.0, epsilon=1.0)
    last: dict[tuple[int, int], float] = {}
    for (_, info), (after, _) in itertools.pairwise(rounds):
        assert after.peers is not None
        assert after.peers.looked is not None
        now = received(info.trained, whose)
        last |= {(i, j): float(now[i, j]) for i, j in after.peers.looked.nonzero().tolist()}
    assert len(last) > 12  # some pairs of earlier rounds
    for i in range(6):
        seen = [j for j in range(6) if (i, j) in last]
        row = torch.tensor([-2.0 * last[i, j] for j in seen], dtype=torch.float64).softmax(0)
        close(after.moments["Y"][i, seen], row)


def test_federico_trains_each_model_for_those_who_use_it() -> None:
    whose = clients(K)
    rounds = stepped("federico", whose, 3)
    weights = torch.eye(K, dtype=torch.float64)  # before the first graph each serves its own client
    for (before, _), (after, _) in itertools.pairwise(rounds):
        for i in range(K):
            slope = {name: torch.zeros_like(value) for name, value in one(before.params, i).items()}
            for j in range(K):
                part = gradient(one(before.params, i), whose, j)
                slope = {name: value + weights[j, i] * part[name] for name, value in slope.items()}
            close_networks(after.params, i, sgd(one(before.params, i), slope))
        weights = after.moments["Y"]
        assert float((weights - weights.T).abs().max()) > 1e-3  # or the transpose would not show


def test_federico_predicts_with_a_mixture() -> None:
    whose = clients(K)
    em, state = driver(built("federico", whose), whose)
    state, _ = em.step(state)
    found = em.evaluate(state)
    alone = whose.evaluate(state.params)
    for i in range(K):
        x, y = data(whose, i, "test")
        probs = torch.zeros(len(y), 3, dtype=torch.float64)
        for j in range(K):
            probs += state.moments["Y"][i, j] * outputs(one(state.params, j), x).softmax(1)
        close(found.loss[i], -probs[torch.arange(len(y)), y].log().mean())
        close(found.score[i], (probs.argmax(1) == y).double().mean())
    assert not torch.equal(found.loss, alone.loss)


# FedProx.


def test_fedprox_averages_networks_that_are_pulled_back_to_where_the_round_began() -> None:
    """These are the personal networks of pFedMe (T. Dinh et al., 2020), that is with R = 1, eta lambda = 1 and beta = 1: it
    steps from w to w - eta lambda (w - theta_i(w)), theta_i(w) being about argmin f_i(theta) + lambda / 2 |theta - w|^2.
    """
    whose = clients(K)
    em, state = driver(built("fedprox", whose, mu=0.7), whose, Schedule(local_steps=3))
    sizes = [6.0, 7.0, 8.0, 9.0]
    for _ in range(2):
        networks = []
        for k in range(K):
            here = begun = one(state.params, k)
            for _ in range(3):
                slope = gradient(here, whose, k)
                here = sgd(here, {name: slope[name] + 0.7 * (here[name] - begun[name]) for name in slope})
            networks.append(here)
        state, info = em.step(state)
        average = {name: sum(sizes[k] / 30 * networks[k][name] for k in range(K)) for name in networks[0]}
        for i in range(K):
            close_networks(state.params, i, average)
            close_networks(info.trained, i, networks[i])


# Ditto.


@pytest.mark.parametrize("steps", [1, 3])
def test_ditto_pulls_towards_a_federated_average(steps: int) -> None:
    whose = clients(K)
    em, state = driver(built("ditto", whose, strength=0.7), whose, Schedule(local_steps=steps))
    # All start from the same network in Ditto: theta^0 of the state, which is the global one, too.
    state = state._replace(params=em.init().params)
    sizes = [6.0, 7.0, 8.0, 9.0]
    common = one(state.params, 0)
    personal = [one(state.params, i) for i in range(K)]
    for _ in range(2):
        average = {name: torch.zeros_like(value) for name, value in common.items()}
        for k in range(K):
            theirs = common
            for _ in range(steps):
                theirs = sgd(theirs, gradient(theirs, whose, k))
                slope = gradient(personal[k], whose, k)
                pulled = {n: slope[n] + 0.7 * (personal[k][n] - common[n]) for n in slope}
                personal[k] = sgd(personal[k], pulled)
            average = {name: value + sizes[k] / 30 * theirs[name] for name, value in average.items()}
        common = average
        state, _ = em.step(state)
        for i in range(K):
            close_networks(state.params, i, personal[i])
        for name, value in common.items():
            close(state.memory[f"global/{name}"].value, value)


# Dada.


def dadas_objective(
    graph: Tensor, params: Any, whose: Clients, confidence: Tensor, mu1: float, mu2: float, sparsity: float
) -> Tensor:
    """J(theta, w) over unordered pairs, of an undirected w given by its upper triangle."""
    total = torch.zeros((), dtype=torch.float64)
    for k in range(K):
        degree = sum(graph[min(k, j), max(k, j)] for j in range(K) if j != k)
        total = total + degree * confidence[k] * loss(one(params, k), whose, k) - mu2 * (degree + 0.01).log()
        for j in range(k):
            total = total + mu1 / 2 * graph[j, k] * distance(one(params, j), one(params, k)) ** 2
            total = total + mu2 * sparsity * graph[j, k] ** 2
    return total


def test_dada_lowers_its_published_objective() -> None:
    whose = clients(K)
    confidence = torch.tensor([6.0, 7.0, 8.0, 9.0], dtype=torch.float64) / 9
    values = {"mu1": 0.4, "mu2": 0.7, "sparsity": 1.3}
    em, state = driver(built("dada", whose, **values), whose, Schedule(local_steps=2))
    graph = torch.zeros(K, K, dtype=torch.float64)
    start = torch.full((K, K), 0.5, dtype=torch.float64).triu(1)
    for number in range(2):
        networks = [one(state.params, k) for k in range(K)]
        for _ in range(2):
            moved = []
            for k in range(K):
                own = gradient(networks[k], whose, k)
                degree = float(graph[k].sum()) if number else 1.0
                slope = {name: confidence[k] * value for name, value in own.items()}
                for j in range(K):
                    for name in slope:
                        slope[name] += 0.4 / degree * graph[k, j] * (networks[k][name] - networks[j][name])
                moved.append(sgd(networks[k], slope))
            networks = moved
        state, info = em.step(state)
        for k in range(K):
            close_networks(state.params, k, networks[k])
        objective = partial(dadas_objective, params=info.trained, whose=whose, confidence=confidence, **values)
        for _ in range(50):
            upper = start.clone().requires_grad_()
            here = objective(upper)
            (slope_of_w,) = torch.autograd.grad(here, upper)
            # Half of the slope in an unordered pair's weight for each of its directions; halved while J would rise.
            for halved in range(12):
                start = (upper.detach() - 0.05 / 2 * 0.5**halved * slope_of_w).clamp(0, 1).triu(1)
                if float(objective(start)) <= float(here.detach()) + 1e-12:
                    break
        graph = state.moments["Y"]
        close(graph, start + start.T)
        close(torch.tensor(info.elbo), -objective(start), 1e-4)
        assert graph[graph > 0].unique().numel() > 3


# pFedGraph.


def cosine(one: dict[str, Tensor], other: dict[str, Tensor]) -> Tensor:
    flat, theirs = (torch.cat([value.flatten() for value in network.values()]) for network in (one, other))
    return (flat * theirs).sum() / (flat.norm() * theirs.norm())


def nearest_on_the_simplex(point: Tensor) -> Tensor:
    """argmin |w - point|^2 over the simplex, by trying every support: of those that are feasible, the nearest."""
    found = []
    for support in itertools.product([False, True], repeat=len(point)):
        if any(support):
            kept = torch.tensor(support)
            w = torch.where(kept, point - (point[kept].sum() - 1) / kept.sum(), 0.0)
            if bool((w >= 0).all()):
                found.append(w)
    return min(found, key=lambda w: float((w - point).square().sum()))


def test_pfedgraph_solves_its_quadratic_and_pulls_towards_the_aggregate() -> None:
    whose = clients(K)
    em, state = driver(built("pfedgraph", whose, alpha=1.6, lam=3.0), whose, Schedule(local_steps=2))
    start = state.initial
    counts = torch.tensor([len(data(whose, i)[1]) for i in range(K)], dtype=torch.float64)
    sparse = dense = False
    for _ in range(3):
        before = state
        state, info = em.step(before)
        for i in range(K):
            here = aggregate = one(before.params, i)
            strength = 3.0 / sum(value.square().sum() for value in aggregate.values()) * (before.round > 0)
            for _ in range(2):
                slope = gradient(here, whose, i)
                slope = {name: slope[name] + strength * (here[name] - aggregate[name]) for name in slope}
                here = sgd(here, slope)
            close_networks(info.trained, i, here)
            moved = [{name: info.trained[name][j] - start[name][j] for name in start} for j in range(K)]
            alike = torch.stack([cosine(moved[i], moved[j]) for j in range(K)])
            w = nearest_on_the_simplex(counts / counts.sum() + 1.6 / 2 * alike)
            close(state.moments["Y"][i], w)
            mixed = {name: sum(w[j] * info.trained[name][j] for j in range(K)) for name in start}
            close_networks(state.params, i, mixed)
            sparse |= bool((w == 0).any())
            dense |= int((w > 0).sum()) > 1
    assert sparse
    assert dense


# FC.


def threshold_clustering(updates: Tensor, centre: Tensor, share: float, steps: int) -> tuple[Tensor, set[int]]:
    """Threshold-Clustering of (N, P) from one centre, update by update; and how many are within the radius, by step."""
    sizes = set()
    for _ in range(steps):
        far = torch.stack([(update - centre).norm() for update in updates])
        radius = far.quantile(share)
        within = [bool(distance <= radius) for distance in far]
        centre = sum((update if near else centre) for update, near in zip(updates, within, strict=True)) / len(updates)
        sizes.add(sum(within))
    return centre, sizes


@pytest.mark.parametrize("share", [0.4, 0.7])
def test_fc_moves_networks_by_threshold_clustering_of_updates(share: float) -> None:
    whose = clients(6)
    for (before, info), (after, _) in itertools.pairwise(stepped("fc", whose, 2, share=share, steps=4)):
        moved = {name: info.trained[name] - before.params[name] for name in before.params}
        updates = torch.cat([value.flatten(1) for value in moved.values()], 1)
        found = torch.cat([(after.params[name] - before.params[name]).flatten(1) for name in moved], 1)
        for i in range(6):
            centre, sizes = threshold_clustering(updates, updates[i], share, 4)
            close(found[i], centre)
            assert sizes <= {3, 5, 4}
            assert not bool((centre - updates[i]).norm() < 1e-3), "others count"
            assert not bool((centre - updates.mean(0)).norm() < 1e-3), "not all do"


def test_fc_leaves_out_a_network_that_has_broken() -> None:
    whose = clients(K)
    moved = networks(whose)
    well = torch.tensor([0, 2, 3])
    moved["1.bias"][1] = torch.nan
    rows = built("fc", whose, share=0.6).prior(
        Evidence.given(loss=torch.zeros(K, K), includes_self=True, round_updates=moved)
    )
    close(rows[1], torch.tensor([0.0, 1.0, 0.0, 0.0]))
    assert not bool(rows[well, 1].any())
    close(rows.sum(1), torch.ones(K))
    assert bool((rows[well][:, well] > 0).any(1).all())
    assert int((rows[well][:, well] > 0).sum()) > 3


# CFL.


def lowest_cut(updates: dict[int, Tensor]) -> set[int]:
    """The side without the first client of the cut with the lowest highest cosine across, among all cuts."""
    first, *others = sorted(updates)
    found: list[tuple[float, set[int]]] = []
    for size in range(1, len(others) + 1):
        for side in itertools.combinations(others, size):
            rest = [first, *(client for client in others if client not in side)]
            cosines = [torch.cosine_similarity(updates[i], updates[j], dim=0) for i in side for j in rest]
            found.append((float(max(cosines)), set(side)))
    return min(found, key=lambda cut: cut[0])[1]


@pytest.mark.parametrize("e_step", [None, SVIStep()], ids=["its own", "svi"])
def test_cfl_cuts_clusters_that_rest_while_their_clients_do_not(e_step: Any) -> None:
    whose, eps1, eps2 = clients(7, batch_size=2), 0.2, 0.29
    count = [6.0 + i for i in range(7)]
    model = built("cfl", whose, eps1=eps1, eps2=eps2)
    em = EM(model._replace(e_step=e_step or model.e_step), whose, Schedule(local_steps=6))
    state, clusters, seen = em.init(), [set(range(7))], []
    for _ in range(5):
        before = state.params
        state, info = em.step(state)
        moved = torch.cat([(info.trained[name] - before[name]).flatten(1) for name in before], 1)
        for whole in [cluster for cluster in clusters if len(cluster) > 1]:
            mean = sum((count[i] * moved[i] for i in whole), torch.tensor(0.0)) / sum(count[i] for i in whole)
            rests, quiet = bool(mean.norm() < eps1), all(moved[i].norm() <= eps2 for i in whole)
            if rests and not quiet:
                side = lowest_cut({i: moved[i] for i in whole})
                clusters = [each for each in clusters if each != whole] + [whole - side, side]
            seen.append((rests, quiet))
        for cluster in clusters:
            for i in cluster:
                total = sum(count[j] for j in cluster)
                mixed = {
                    name: sum((count[j] * value[j] for j in cluster), torch.tensor(0.0)) / total
                    for name, value in info.trained.items()
                }
                close_networks(state.params, i, mixed)
                row = torch.tensor([count[j] / total if j in cluster else 0.0 for j in range(7)], dtype=torch.float64)
                close(state.moments["Y"][i], row)
    assert set(seen) == {(False, False), (True, False), (True, True)}
    assert sorted(map(len, clusters)) == [1, 1, 2, 3]


def test_cfl_cuts_by_updates_wherever_these_began() -> None:
    """Who was away begins elsewhere than its cluster: distances of networks would not tell how it moves."""
    whose, eps1, eps2 = clients(7, batch_size=2), 0.4, 0.29
    count = torch.tensor([6.0 + i for i in range(7)], dtype=torch.float64)
    em = EM(built("cfl", whose, eps1=eps1, eps2=eps2), whose, Schedule(local_steps=6))
    state, _ = em.step(em.init(), ["client 3"])
    for _ in range(3):
        before, clusters = state.params, state.prior["cluster"].tolist()
        state, info = em.step(state)
        moved = torch.cat([(info.trained[name] - before[name]).flatten(1) for name in before], 1)
        expected = set()
        for label in set(clusters):
            whole = {i for i in range(7) if clusters[i] == label}
            who, side = sorted(whole), set[int]()
            if (
                len(who) > 1
                and (count[who] @ moved[who]).norm() < eps1 * count[who].sum()
                and moved[who].norm(dim=1).max() > eps2
            ):
                side = lowest_cut({i: moved[i] for i in whole})
            expected |= {frozenset(part) for part in (side, whole - side) if part}
        labels = state.prior["cluster"].tolist()
        assert {frozenset(i for i in range(7) if labels[i] == label) for label in labels} == expected
    assert len(expected) > 1


# Components: seats without data.


def seated(name: str, whose: Clients, components: int, **choices: Any) -> tuple[EM, EMState]:
    """An EM and a state in which all networks differ, those of components, too; two local steps a round."""
    em, state = driver(built(name, whose, components=components, **choices), whose, Schedule(local_steps=2))
    shapes = state.components
    seats = {n: 1.3 * normal(*value.shape, seed=70 + place) for place, (n, value) in enumerate(shapes.items())}
    return em, state._replace(components=seats)


def chosen_component(components: Any, whose: Clients, client: int) -> int:
    losses = [float(loss(one(components, c), whose, client)) for c in range(len(components["1.bias"]))]
    return losses.index(min(losses))


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_ifca_serves_trains_and_averages_clusters(executor: str) -> None:
    """Ghosh et al. (2020), Algorithm 1 with model averaging: argmin, LocalUpdate, the mean of a cluster's users."""
    whose = clients(6, executor=executor)
    em, state = seated("ifca", whose, 4)
    used = set()
    for _ in range(3):
        before = state.components
        cluster = [chosen_component(before, whose, i) for i in range(6)]
        used |= set(cluster)
        copies = []
        for i in range(6):
            here = one(before, cluster[i])
            for _ in range(2):
                here = sgd(here, gradient(here, whose, i))
            copies.append(here)
        state, info = em.step(state)
        for i in range(6):
            close_networks(info.trained, i, copies[i], 1e-12)
        for c in range(4):
            users = [copies[i] for i in range(6) if cluster[i] == c]
            mean = {n: sum(user[n] for user in users) / len(users) for n in before} if users else one(before, c)
            close_networks(state.components, c, mean, 1e-12)
        for i in range(6):  # what clients use, and are judged by, until the next round
            c = chosen_component(state.components, whose, i)
            close_networks(state.params, i, one(state.components, c), 0)
            close(state.moments["Y"][i], torch.eye(4)[c], 0)
    assert 1 < len(used) < 4, "several clusters, and a component that nobody uses"


def responsibilities(components: Any, share: Tensor, whose: Clients, client: int) -> Tensor:
    """r_nc ~ pi_c p(y_n | x_n, theta_c) of a client's images, (n, G)."""
    x, y = data(whose, client)
    said = [outputs(one(components, c), x).softmax(1)[torch.arange(len(y)), y] for c in range(len(share))]
    joint = share * torch.stack(said, 1)
    return joint / joint.sum(1, keepdim=True)


def weighted_gradient(network: Any, whose: Clients, client: int, weight: Tensor) -> dict[str, Tensor]:
    leaves = {name: value.detach().clone().requires_grad_() for name, value in network.items()}
    x, y = data(whose, client)
    losses = -outputs(leaves, x).log_softmax(1)[torch.arange(len(y)), y]
    values = torch.autograd.grad((weight * losses).mean(), list(leaves.values()))
    return dict(zip(leaves, values, strict=True))


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_fedem_is_em_for_a_mixture_of_components(executor: str) -> None:
    """Marfoq et al. (2021), Algorithm 1: responsibilities, shares, copies trained by them, and means by n_i / n."""
    whose = clients(K, executor=executor)
    em, state = seated("fedem", whose, 3)
    counts = [len(data(whose, i)[1]) for i in range(K)]
    share = torch.full((K, 3), 1 / 3, dtype=torch.float64)
    favourites = set()
    for _ in range(3):
        before = state.components
        r = [responsibilities(before, share[i], whose, i) for i in range(K)]
        share = torch.stack([each.mean(0) for each in r])
        mean = {name: torch.zeros_like(value) for name, value in before.items()}
        for i, c in itertools.product(range(K), range(3)):
            here = one(before, c)
            for _ in range(2):
                here = sgd(here, weighted_gradient(here, whose, i, r[i][:, c]))
            for name, value in here.items():
                mean[name][c] += counts[i] / sum(counts) * value
        state, _ = em.step(state)
        for c in range(3):
            close_networks(state.components, c, one(mean, c), 1e-12)
        after = [responsibilities(mean, share[i], whose, i) for i in range(K)]
        for i in range(K):
            close(state.moments["source"][: counts[i], i], after[i], 1e-12)
            close(state.moments["Y"][i], after[i].mean(0), 1e-12)
            close_networks(state.params, i, one(mean, int(after[i].mean(0).argmax())), 1e-12)
            favourites.add(int(after[i].mean(0).argmax()))
    assert len(favourites) > 1
    for i in range(K):  # predictions are mixtures
        x, _ = data(whose, i, "test")
        mixture = sum(state.moments["Y"][i, c] * outputs(one(state.components, c), x).softmax(1) for c in range(3))
        predictor = em.predictor(state)
        found, mask = whose.predict(predictor.networks, "test", predictor.mixture)
        close(found[i][mask[i]].softmax(1), mixture, 1e-12)


def test_every_network_of_these_tests_differs() -> None:
    whose = clients(K)
    params = networks(whose)
    assert all(float(distance(one(params, i), one(params, j))) > 0.1 for i, j in off_diagonal(K))
