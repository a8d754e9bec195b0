"""Attention against its printed update, written out filter by filter, enumeration and its own draws."""

from __future__ import annotations

import itertools
import math
from functools import partial

import pytest
import torch
from torch import Tensor

from scool_ppl import (
    InputError,
    MomentELBO,
    NaturalGradient,
)
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.enumeration import enumerated_bound
from scool_ppl.infer.priors.attention import Attention, FilterEncoder
from scool_ppl.infer.priors.base import Joint
from scool_ppl.look.evidence import Evidence
from scool_ppl.train.networks import MLP
from tests.helpers.evidence import random_log_lik
from tests.helpers.priors import (
    attending,
    attention,
    check_draws_of_rows,
    rng,
    rows_over,
    scattered,
    some_masked,
    updates,
    with_updates,
)
from tests.helpers.small import close, normal


def written_out(prior: Attention, theta: dict[str, Tensor], num_clients: int) -> Tensor:
    """<E(u_i), E(u_j)>, the mean over filters of the inner products of what two layers make of each filter."""
    assert prior.encoder is not None
    weights = dict(prior.encoder.named_parameters())
    codes: list[list[Tensor]] = []
    for i in range(num_clients):
        codes.append([])
        for layer in ("1", "3"):
            for filter_weights, bias in zip(theta[f"{layer}.weight"][i], theta[f"{layer}.bias"][i], strict=True):
                u = prior.scale * torch.cat([filter_weights, bias[None]])
                hidden = weights[f"layers.{layer}.0.weight"] @ u + weights[f"layers.{layer}.0.bias"]
                second = weights[f"layers.{layer}.2.weight"] @ hidden.clamp(min=0) + weights[f"layers.{layer}.2.bias"]
                codes[i].append(second)
    return torch.stack(
        [
            torch.stack([sum(a @ b for a, b in zip(codes[i], codes[j], strict=True)) / 4 for j in range(num_clients)])  # type: ignore[misc]
            for i in range(num_clients)
        ]
    )


@pytest.mark.parametrize("mask", [~torch.eye(5, dtype=torch.bool), some_masked(5)])
def test_a_step_of_attention_equals_the_printed_update(mask: Tensor) -> None:
    log_lik = random_log_lik(5)
    prior, evidence = attention(5), attending(log_lik, mask)
    scores = written_out(prior, updates(5), 5)
    p = rows_over(mask, scores)
    w = rows_over(mask, log_lik + torch.where(mask, p, 1.0).log()).detach()
    # E then climbs sum_ij w_ij log p_ij: one plain gradient step, by autograd of the loops.
    leaves = dict(prior.encoder.named_parameters())  # type: ignore[union-attr]
    objective = torch.stack([(w[i, mask[i]] * scores[i, mask[i]].log_softmax(0)).sum() for i in range(5)]).sum()
    slopes = torch.autograd.grad(objective, list(leaves.values()))
    before = {name: leaf.detach().clone() for name, leaf in leaves.items()}
    step = NaturalGradient(sweeps=1, optimizer=partial(torch.optim.SGD, lr=0.01))
    found = step(Joint(prior, log_lik), evidence, {}, rng())
    close(found.moments["Y"], w)
    for (name, value), slope in zip(before.items(), slopes, strict=True):
        close(leaves[name], value + 0.01 * slope)
    assert max(float(slope.abs().max()) for slope in slopes) > 1e-3
    rises = torch.tensor(found.bounds, dtype=torch.float64).diff()
    assert float(rises.min()) >= -1e-10


@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_of_attention_equals_enumeration(seed: int) -> None:
    for mask in (~torch.eye(4, dtype=torch.bool), some_masked(4)):
        log_lik = random_log_lik(4, seed)
        prior, evidence = attention(4), attending(log_lik, mask)
        joint = Joint(prior, log_lik)
        guide = scattered(joint, evidence, seed)
        q = guide.distribution("Y").mean.detach()
        assert not bool(q[~mask].any())  # q may not choose whom the prior excludes
        p = rows_over(mask, written_out(prior, updates(4), 4).detach())
        total = 0.0
        for row in itertools.product(*(mask[i].nonzero().flatten().tolist() for i in range(4))):
            weight = math.prod(float(q[i, j]) for i, j in enumerate(row))
            log_p = sum(float(log_lik[i, j] + p[i, j].log()) for i, j in enumerate(row))
            total += weight * (log_p - math.log(weight))
        exact = float(MomentELBO().bound(joint, guide, evidence).detach())
        assert exact == pytest.approx(total, abs=1e-8)
        assert exact == pytest.approx(enumerated_bound(joint, guide, evidence), abs=1e-8)


def test_rows_of_attention_do_not_care_about_masked_clients_nor_about_who_is_last() -> None:
    log_lik, order = random_log_lik(5), torch.tensor([3, 0, 4, 1, 2])
    mask = some_masked(5)
    frozen = NaturalGradient(sweeps=1)
    here = frozen(Joint(attention(5, learn=False), log_lik), attending(log_lik, mask), {}, rng()).moments["Y"]
    moved = log_lik[order][:, order]
    evidence = attending(moved, mask[order][:, order])
    with_updates(evidence, {name: value[order] for name, value in updates(5).items()})
    there = frozen(Joint(attention(5, learn=False), moved), evidence, {}, rng()).moments["Y"]
    close(there, here[order][:, order])
    assert not bool(here[~mask].any())
    for junk in (torch.nan, 1e6):
        spoiled = torch.where(mask, log_lik, torch.tensor(junk).double())
        again = frozen(Joint(attention(5, learn=False), spoiled), attending(log_lik, mask), {}, rng())
        close(again.moments["Y"], here)


def test_attention_in_a_table_of_peers_is_attention_to_those_in_it() -> None:
    senders = torch.tensor([[1, 3], [0, 2], [3, 1], [2, 0]])
    log_lik = random_log_lik(4)
    evidence = Evidence.given(
        loss=-log_lik.gather(1, senders), peers=Peers(torch.ones(4, 2, dtype=torch.bool), senders)
    )
    with_updates(evidence, updates(4))
    prior = attention(4, learn=False)
    found = NaturalGradient()(Joint(prior, log_lik.gather(1, senders)), evidence, {}, rng()).moments["Y"]
    scores = written_out(prior, updates(4), 4)
    for i in range(4):
        close(found[i], (scores + log_lik)[i, senders[i]].softmax(0))


def test_soft_attention_is_a_point_mass_at_its_rows() -> None:
    log_lik = random_log_lik(4)
    prior, evidence = attention(4, learn=False, soft=True, includes_self=True), attending(log_lik, includes_self=True)
    found = NaturalGradient()(Joint(prior, log_lik), evidence, {}, rng())
    rows = written_out(prior, updates(4), 4).softmax(1)
    close(found.moments["Y"], rows)
    assert found.elbo == pytest.approx(float((rows * log_lik).sum()), abs=1e-10)


def test_the_encoder_reads_filters_and_does_not_grow_with_them() -> None:
    conv = {"features.0.weight": normal(3, 6, 2, 3, 3), "features.0.bias": normal(3, 6), "out.weight": normal(3, 4, 7)}
    found = FilterEncoder.filters(conv)
    assert {name: tuple(value.shape) for name, value in found.items()} == {"features.0": (3, 6, 19), "out": (3, 4, 7)}
    for client, place in ((0, 0), (2, 5)):
        close(found["features.0"][client, place, :18], conv["features.0.weight"][client, place].flatten())
        close(found["features.0"][client, place, 18], conv["features.0.bias"][client, place])
    encoder = FilterEncoder({"out": 7}).double()
    one = encoder({"out.weight": conv["out.weight"]})
    twice = encoder({"out.weight": torch.cat([conv["out.weight"]] * 2, 1)})
    close(one @ one.T, twice @ twice.T)
    names = {name for name, _ in MLP(3, 2, (4,)).named_parameters()}
    assert names == set(updates(1))  # what the tests call an update is one


def test_attention_without_an_encoder_or_without_a_scale_is_refused() -> None:
    log_lik = random_log_lik(3)
    with pytest.raises(InputError, match="no encoder yet"):
        Attention(3).double()(attending(log_lik))
    with pytest.raises(InputError, match="expected a positive number"):
        Attention(3, scale=0.0)


def test_draws_have_the_probabilities_of_the_softmax_and_never_choose_the_masked() -> None:
    mask, prior = some_masked(4), attention(4)
    probabilities = rows_over(mask, written_out(prior, updates(4), 4).detach())
    check_draws_of_rows(prior, attending(random_log_lik(4), mask), probabilities)
