"""The priors against the printed updates, enumeration by hand, SVI and their own draws."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import pyro
import pytest
import torch
from pyro.infer import Predictive
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence

from scool_ppl import AutoMeanField, GraphPrior, InputError, MomentELBO, NaturalGradient, SVIStep
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.enumeration import enumerated_bound
from scool_ppl.infer.moments import score
from scool_ppl.infer.priors import ModelMixture
from scool_ppl.infer.priors.attention import Attention, FilterEncoder
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.priors.box import Box
from scool_ppl.infer.priors.mmsbm import MMSBM
from scool_ppl.infer.priors.sbm import SBM
from scool_ppl.look.evidence import Evidence
from scool_ppl.train.networks import MLP
from tests.conftest import evidence_of, planted, random_log_lik
from tests.helpers.small import close, normal, uniform


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_masked(num_clients: int) -> Tensor:
    mask = ~torch.eye(num_clients, dtype=torch.bool)
    mask[0, 2] = mask[num_clients - 1, 1] = False
    return mask


def scattered(joint: Joint, evidence: Evidence, seed: int = 0) -> AutoMeanField:
    """The automatic guide at a random q."""
    guide = AutoMeanField(joint)
    guide.setup(evidence)
    random = rng(seed)
    with torch.no_grad():
        for parameter in guide.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random, dtype=parameter.dtype))
    return guide


def updates(num_clients: int, seed: int = 40) -> dict[str, Tensor]:
    """theta^{t+1/2} - theta^0 of MLPs with three inputs, two hidden units and two classes."""
    shapes = {"1.weight": (2, 3), "1.bias": (2,), "3.weight": (2, 2), "3.bias": (2,)}
    return {name: normal(num_clients, *shape, seed=seed + len(name) + shape[0]) for name, shape in shapes.items()}


def attention(num_clients: int, learn: bool = True, **options: Any) -> Attention:
    prior = Attention(num_clients, **{"scale": 1.5, **options})
    with torch.random.fork_rng():
        torch.manual_seed(3)
        prior.encoder = FilterEncoder({"1": 4, "3": 3}).requires_grad_(learn)
    found: Attention = prior.double()
    return found


def attending(log_lik: Tensor, mask: Tensor | None = None, includes_self: bool = False) -> Evidence:
    evidence = Evidence.given(loss=-log_lik, includes_self=includes_self)
    if mask is not None:
        evidence.peers = evidence.peers._replace(mask=evidence.peers.mask & mask)
    evidence.updates = updates(len(log_lik))
    return evidence


def mixing(num_clients: int, learn: bool = False, log_pi: Tensor | None = None) -> ModelMixture:
    prior: ModelMixture = ModelMixture(num_clients, learn=learn).double()
    if log_pi is not None:
        prior.log_pi = log_pi
    return prior


def mixed_evidence(log_lik: Tensor, mask: Tensor | None = None) -> Evidence:
    peers = Peers.everybody(len(log_lik), includes_self=True)
    return Evidence.given(loss=-log_lik, peers=peers if mask is None else Peers(mask))


def mmsbm(num_clients: int, blocks: int = 2, **options: Any) -> MMSBM:
    prior: MMSBM = MMSBM(num_clients, blocks, **options).double()
    return prior


# MMSBM.


class PrintedMMSBM:
    """The updates as the papers print them, misprints corrected, with explicit loops over pairs."""

    def __init__(self, log_lik: Tensor, mask: Tensor, phi: tuple[Tensor, Tensor], B: Tensor, alpha: Tensor) -> None:
        self.ell, self.B, self.alpha = log_lik, B.clone(), alpha
        self.out, self.into = (part.clone() for part in phi)  # z_{i->j} and z_{i<-j}
        self.pairs = [tuple(pair) for pair in mask.nonzero().tolist()]
        self.w = torch.full_like(log_lik, 0.5)

    def update_w(self) -> None:
        odds = self.B.log() - (1 - self.B).log()
        for i, j in self.pairs:
            self.w[i, j] = torch.sigmoid(self.ell[i, j] + self.out[i, j] @ odds @ self.into[i, j])

    def update_gamma(self) -> None:
        self.gamma = self.alpha.expand(len(self.ell), -1).clone()
        for i, j in self.pairs:
            self.gamma[i] += self.out[i, j]
            self.gamma[j] += self.into[i, j]

    def log_prior(self, client: int) -> Tensor:
        return self.gamma[client].digamma() - self.gamma[client].sum().digamma()

    def between(self, i: int, j: int) -> Tensor:
        return self.w[i, j] * self.B.log() + (1 - self.w[i, j]) * (1 - self.B).log()

    def update_out(self) -> None:
        for i, j in self.pairs:
            self.out[i, j] = (self.log_prior(i) + self.between(i, j) @ self.into[i, j]).softmax(0)

    def update_into(self) -> None:
        for i, j in self.pairs:
            self.into[i, j] = (self.log_prior(j) + self.between(i, j).T @ self.out[i, j]).softmax(0)

    def update_blocks(self, clamp: float) -> None:
        edges, total = torch.zeros_like(self.B), torch.zeros_like(self.B)
        for i, j in self.pairs:
            outer = self.out[i, j][:, None] * self.into[i, j]
            edges += self.w[i, j] * outer
            total += outer
        self.B = (edges / total).clamp(clamp, 1 - clamp)


@pytest.mark.parametrize("mask", [~torch.eye(5, dtype=torch.bool), some_masked(5)])
def test_a_sweep_of_the_mmsbm_equals_the_printed_updates(mask: Tensor) -> None:
    log_lik = random_log_lik(5)
    prior = mmsbm(5, 3, alpha=0.8, clamp=0.05, learn_alpha=False)
    start = {f"z_{role}_logits": normal(5, 5, 3, seed=seed) for seed, role in enumerate(("receiver", "sender"))}
    phi = start["z_receiver_logits"].softmax(-1), start["z_sender_logits"].softmax(-1)
    printed = PrintedMMSBM(log_lik, mask, phi, prior.B.detach(), prior.alpha)
    step = NaturalGradient(sweeps=1, keep=1.0)
    for sweep in range(2):
        found = step(Joint(prior, log_lik), evidence_of(log_lik, mask), start, rng())
        printed.update_w()
        printed.update_gamma()
        printed.update_out()
        printed.update_into()
        printed.update_blocks(clamp=0.05)
        close(found.moments["Y"][mask], printed.w[mask])
        close(found.q["pi_concentration"], printed.gamma)
        close(found.moments["z_receiver"][mask], printed.out[mask])
        close(found.moments["z_sender"][mask], printed.into[mask])
        close(prior.B, printed.B)
        start = found.q
        assert sweep or float((printed.B - 0.5).abs().max()) > 0.1


def enumerated_mmsbm(guide: AutoMeanField, prior: MMSBM, log_lik: Tensor, pairs: list[tuple[int, int]]) -> float:
    """The bound over every edge and every pair of memberships, with nothing of the library's densities."""
    q = {name: guide.distribution(name).mean.detach() for name in ("Y", "z_receiver", "z_sender")}
    gamma = guide.distribution("pi").concentration.detach()
    alpha = prior.alpha.detach().expand_as(gamma)
    log_pi = gamma.digamma() - gamma.sum(-1, keepdim=True).digamma()
    B = prior.B.detach()
    total = -float(kl_divergence(Dirichlet(gamma), Dirichlet(alpha)).sum())
    # Given q(pi), pairs are independent, so each may be enumerated by itself.
    for i, j in pairs:
        for y, g, h in itertools.product((0, 1), range(len(B)), range(len(B))):
            weight = float(
                (q["Y"][i, j] if y else 1 - q["Y"][i, j]) * q["z_receiver"][i, j, g] * q["z_sender"][i, j, h]
            )
            log_p = y * log_lik[i, j] + log_pi[i, g] + log_pi[j, h] + (B[g, h] if y else 1 - B[g, h]).log()
            total += weight * (float(log_p) - math.log(weight))
    return total


@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_of_the_mmsbm_equals_enumeration(seed: int) -> None:
    for num_clients, kept in ((2, None), (3, [(0, 1), (1, 0), (2, 0)]), (4, None)):
        log_lik = random_log_lik(num_clients, seed)
        prior = mmsbm(num_clients, alpha=0.7)
        prior.B = torch.tensor([[0.85, 0.3], [0.2, 0.6]], dtype=torch.float64)
        mask = torch.ones(num_clients, num_clients, dtype=torch.bool)
        pairs = [(i, j) for i in range(num_clients) for j in range(num_clients) if i != j]
        if kept is not None:
            mask, pairs = torch.zeros_like(mask), kept
            for pair in kept:
                mask[pair] = True
        joint, evidence = Joint(prior, log_lik), evidence_of(log_lik, mask)
        guide = scattered(joint, evidence, seed)
        exact = float(MomentELBO().bound(joint, guide, evidence).detach())
        assert exact == pytest.approx(enumerated_mmsbm(guide, prior, log_lik, pairs), abs=1e-8)
        if num_clients < 4:
            assert exact == pytest.approx(enumerated_bound(joint, guide, evidence), abs=1e-8)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("model", [SBM, MMSBM])
def test_the_bound_never_falls(model: type[SBM], seed: int) -> None:
    size = 5 if model is SBM else 4
    log_lik = random_log_lik(size, seed)
    prior = model(size, 2, spectral=False).double()
    step = NaturalGradient(sweeps=50, tol=0, blocks=2)
    found = step(Joint(prior, log_lik), evidence_of(log_lik), {}, rng(seed))
    assert len(found.bounds) == 52
    bounds = torch.tensor(found.bounds, dtype=torch.float64)
    assert float(bounds.diff().min()) >= -1e-9 * (1 + abs(found.elbo))
    assert found.elbo > found.bounds[0]


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_of_rows_never_falls(seed: int) -> None:
    """Attention, whose encoder learns in between, and the mixture, from random rows."""
    log_lik = random_log_lik(5, seed)
    cases = [
        (attention(5), attending(log_lik), "Y_logits"),
        (mixing(5, learn=True), mixed_evidence(log_lik), "Y_logits"),
    ]
    for prior, evidence, name in cases:
        start = {name: 3 * random_log_lik(5, seed + 100)}
        found = NaturalGradient(sweeps=50, tol=0)(Joint(prior, log_lik), evidence, start, rng(seed))
        bounds = torch.tensor(found.bounds, dtype=torch.float64)
        assert len(bounds) == 52
        assert float(bounds.diff().min()) >= -1e-9 * (1 + abs(found.elbo))
        assert found.elbo > found.bounds[0]


def test_svi_of_the_mmsbm_ends_where_coordinate_ascent_does() -> None:
    _, log_lik = planted(4, 2, noise=0.3)
    evidence = evidence_of(log_lik)
    found = {}
    start: dict[str, Tensor] = {}
    for name, step in {
        "natural": NaturalGradient(sweeps=300, tol=1e-10),
        "svi": SVIStep(steps=700, optim=pyro.optim.ClippedAdam({"lr": 0.15, "lrd": 0.995}), keep=1.0),
    }.items():
        prior = mmsbm(4, learn_alpha=False)
        found[name] = step(Joint(prior, log_lik), evidence, start, rng())
        # The bound has many local optima: SVI starts in the basin of the other, a good way off.
        start = {key: 0.7 * value if "logits" in key else value + 0.5 for key, value in found[name].q.items()}
    natural, svi = found["natural"], found["svi"]
    assert svi.bounds[0] < natural.elbo - 0.05
    assert svi.elbo == pytest.approx(natural.elbo, abs=1e-3)
    mask = evidence.peers.mask
    for site in ("Y", "z_receiver", "z_sender"):
        close(svi.moments[site][mask], natural.moments[site][mask], 1e-3)
    gamma = {name: posterior.q["pi_concentration"] for name, posterior in found.items()}
    close(gamma["svi"] / gamma["svi"].sum(1, True), gamma["natural"] / gamma["natural"].sum(1, True), 1e-3)


def test_the_mmsbm_finds_planted_groups_and_starts_from_clusters() -> None:
    group, log_lik = planted(9, 3, noise=0.7)
    # A flat Dirichlet is no prior for few clients: pairs choose freely, and the blocks dissolve.
    prior, evidence = mmsbm(9, 3, alpha=0.1, learn_alpha=False), evidence_of(log_lik)
    start = prior.starts(evidence, log_lik, rng())[-1]
    for i, j in itertools.permutations(range(9), 2):
        assert torch.equal(start["z_receiver"][i, j].argmax(), start["z_receiver"][i, 0].argmax())
        assert torch.equal(start["z_sender"][i, j].argmax(), start["z_receiver"][j, 0].argmax())
        same = bool(group[i] == group[j])
        assert (start["z_receiver"][i, j].argmax() == start["z_sender"][i, j].argmax()) == same
    found = NaturalGradient()(Joint(prior, log_lik), evidence, {}, rng())
    off = ~torch.eye(9, dtype=torch.bool)
    assert torch.equal((found.moments["Y"] > 0.5)[off], (group[:, None] == group)[off])


# Attention.


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


def rows_over(mask: Tensor, values: Tensor) -> Tensor:
    """Softmax of each row over its unmasked entries, one by one."""
    out = torch.zeros_like(values)
    for i in range(len(values)):
        others = mask[i].nonzero().flatten()
        out[i, others] = values[i, others].softmax(0)
    return out


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


def test_svi_of_attention_and_the_mixture_ends_where_coordinate_ascent_does() -> None:
    log_lik = random_log_lik(4)
    for prior, evidence in (
        (attention(4, learn=False), attending(log_lik)),
        (mixing(4, log_pi=normal(4, 4, seed=2)), mixed_evidence(log_lik)),
    ):
        joint = Joint(prior, log_lik)
        natural = NaturalGradient()(joint, evidence, {}, rng())
        svi = SVIStep(steps=500, optim=pyro.optim.Adam({"lr": 0.2}))(joint, evidence, {}, rng())
        assert svi.elbo == pytest.approx(natural.elbo, abs=1e-3)
        close(svi.moments["Y"], natural.moments["Y"], 1e-3)


def test_rows_of_attention_do_not_care_about_masked_clients_nor_about_who_is_last() -> None:
    log_lik, order = random_log_lik(5), torch.tensor([3, 0, 4, 1, 2])
    mask = some_masked(5)
    frozen = NaturalGradient(sweeps=1)
    here = frozen(Joint(attention(5, learn=False), log_lik), attending(log_lik, mask), {}, rng()).moments["Y"]
    moved = log_lik[order][:, order]
    evidence = attending(moved, mask[order][:, order])
    evidence.updates = {name: value[order] for name, value in updates(5).items()}
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
    evidence.updates = updates(4)
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


# The mixture.


def with_self(num_clients: int) -> Tensor:
    mask = torch.ones(num_clients, num_clients, dtype=torch.bool)
    mask[0, 2] = mask[1, 0] = False
    return mask


@pytest.mark.parametrize("mask", [torch.ones(4, 4, dtype=torch.bool), with_self(4)])
def test_a_step_of_the_mixture_equals_the_printed_update(mask: Tensor) -> None:
    log_lik, log_pi = random_log_lik(4), normal(4, 4, seed=3)
    found = NaturalGradient()(Joint(mixing(4, log_pi=log_pi), log_lik), mixed_evidence(log_lik, mask), {}, rng())
    close(found.moments["Y"], rows_over(mask, log_pi + log_lik))
    # The bound at the optimum is the log-evidence of the mixture, sum_i log sum_j Pi_ij P(D_i | theta_j).
    pi = rows_over(mask, log_pi)
    evidence = sum(float((pi[i] * log_lik[i].exp()).sum().log()) for i in range(4))
    assert found.elbo == pytest.approx(evidence, abs=1e-10)


def test_the_learned_mixture_is_its_posterior_and_accumulates() -> None:
    prior, total = mixing(4, learn=True), torch.zeros(4, 4).double()
    for round in range(3):
        log_lik = random_log_lik(4, seed=round)
        total = total + log_lik
        step = NaturalGradient(sweeps=1)
        found = step(Joint(prior, log_lik), mixed_evidence(log_lik), {}, rng())
        close(found.moments["Y"], total.softmax(1))
        close(prior.log_pi.exp(), found.moments["Y"])


def test_who_is_not_looked_at_keeps_its_share_of_the_learned_mixture() -> None:
    """Pi is a distribution over all clients; w divides among the candidates what they had together."""
    prior, pi = mixing(4, learn=True), torch.full((4, 4), 0.25, dtype=torch.float64)
    for round, mask in enumerate((with_self(4), torch.eye(4, dtype=torch.bool) | with_self(4).T, with_self(4))):
        log_lik = random_log_lik(4, seed=round)
        found = NaturalGradient(sweeps=1)(Joint(prior, log_lik), mixed_evidence(log_lik, mask), {}, rng())
        for i in range(4):
            seen = mask[i].nonzero().flatten().tolist()
            together = float(pi[i, seen].sum())
            w = (pi[i, seen].log() + log_lik[i, seen]).softmax(0)
            close(found.moments["Y"][i, seen], w)
            pi[i, seen] = together * w
        close(prior.log_pi.exp(), pi)
        close(pi.sum(1), torch.ones(4))


def test_the_floor_keeps_a_hopeless_candidate_in_reach() -> None:
    prior = ModelMixture(2, learn=True, floor=1e-3).double()
    log_lik = torch.tensor([[0.0, -50.0], [-50.0, 0.0]], dtype=torch.float64)
    NaturalGradient(sweeps=1)(Joint(prior, log_lik), mixed_evidence(log_lik), {}, rng())
    close(prior.log_pi[0, 1].exp(), torch.tensor(1e-3))
    for floor in (0.0, 1.0):
        with pytest.raises(InputError, match="expected a probability"):
            ModelMixture(2, floor=floor)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_of_the_mixture_equals_enumeration(seed: int) -> None:
    log_lik, log_pi = random_log_lik(3, seed), normal(3, 3, seed=3)
    joint, evidence = Joint(mixing(3, log_pi=log_pi), log_lik), mixed_evidence(log_lik)
    guide = scattered(joint, evidence, seed)
    q, pi = guide.distribution("Y").mean.detach(), log_pi.softmax(1)
    total = 0.0
    for row in itertools.product(range(3), repeat=3):
        weight = math.prod(float(q[i, j]) for i, j in enumerate(row))
        log_p = sum(float(log_lik[i, j] + pi[i, j].log()) for i, j in enumerate(row))
        total += weight * (log_p - math.log(weight))
    exact = float(MomentELBO().bound(joint, guide, evidence).detach())
    assert exact == pytest.approx(total, abs=1e-8)
    assert exact == pytest.approx(enumerated_bound(joint, guide, evidence), abs=1e-8)


# Draws.


def test_draws_of_rows_have_the_probabilities_of_the_prior_and_never_choose_the_masked() -> None:
    mask = with_self(4)
    log_pi = normal(4, 4, seed=3)
    other = some_masked(4)
    for prior, evidence, p in (
        (mixing(4, log_pi=log_pi), mixed_evidence(random_log_lik(4), mask), rows_over(mask, log_pi)),
        (
            attention(4),
            attending(random_log_lik(4), other),
            rows_over(other, written_out(attention(4), updates(4), 4).detach()),
        ),
    ):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            drawn = Predictive(prior, num_samples=500, return_sites=["Y"])(evidence)["Y"].view(500, 4, 4)
        assert torch.equal(drawn.sum(-1), torch.ones(500, 4).to(drawn))
        assert not bool(drawn[:, p == 0].any())
        error = (p * (1 - p) / 500).sqrt()
        assert bool(((drawn.double().mean(0) - p).abs() <= 5 * error + 1e-9).all())


def test_draws_of_the_mmsbm_have_the_density_of_their_blocks() -> None:
    prior = mmsbm(3, alpha=0.5)
    prior.B = torch.tensor([[0.85, 0.3], [0.15, 0.6]], dtype=torch.float64)
    evidence = evidence_of(random_log_lik(3))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sites = ["Y", "z_receiver", "z_sender"]
        draws = Predictive(prior, num_samples=1500, return_sites=sites)(evidence)
    edge = draws["Y"].view(-1, 3, 3)[:, 0, 1]
    g, h = (draws[site].view(-1, 3, 3, 2)[:, 0, 1].argmax(-1) for site in sites[1:])
    for row, column in itertools.product(range(2), repeat=2):
        chosen = edge[(g == row) & (h == column)].double()
        density = float(prior.B.detach()[row, column])
        assert len(chosen) > 100
        assert float(chosen.mean()) == pytest.approx(density, abs=5 * (density * (1 - density) / len(chosen)) ** 0.5)
    # z_{0->1} and z_{0->2} come from the same pi_0, z_{1->0} does not.
    blocks = draws["z_receiver"].view(-1, 3, 3, 2).argmax(-1)
    agree = (blocks[:, 0, 1] == blocks[:, 0, 2]).double().mean()
    apart = (blocks[:, 0, 1] == blocks[:, 1, 0]).double().mean()
    # E[sum_g pi_g^2] = (alpha + 1) / (G alpha + 1) under Dirichlet(alpha, alpha).
    assert float(agree) == pytest.approx(1.5 / 2, abs=0.06)
    assert float(apart) == pytest.approx(0.5, abs=0.07)


# Box.


def test_the_box_is_flat() -> None:
    prior, evidence = Box(4, start=0.3).double(), evidence_of(random_log_lik(4), some_masked(4))
    graph = uniform(4, 4, seed=1)
    graph[0, 1], graph[1, 0] = 0.0, 1.0  # both ends belong to it
    values = []
    for masked in (graph, torch.where(some_masked(4), graph, 0.77)):
        leaf = masked.clone().requires_grad_()
        value, _ = score(prior, {"Y": leaf}, evidence)
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
        value, _ = score(Ridge(4).double(), {"Y": torch.where(mask, graph, junk)}, evidence)
        assert float(value) == pytest.approx(-float(graph[mask].sum()), abs=1e-4)


@pytest.mark.parametrize("start", [-0.1, 1.1])
def test_a_start_outside_the_box_is_refused(start: float) -> None:
    with pytest.raises(InputError, match=r"expected a weight in \[0, 1\]"):
        Box(3, start)


# All of them.


def every_prior(num_clients: int) -> list[tuple[GraphPrior, Evidence]]:
    log_lik = random_log_lik(num_clients)
    return [
        (mmsbm(num_clients, 3), evidence_of(log_lik)),
        (attention(num_clients), attending(log_lik)),
        (mixing(num_clients, learn=True), mixed_evidence(log_lik)),
    ]


@pytest.mark.parametrize("num_clients", [1, 2])
def test_few_clients_are_finite(num_clients: int) -> None:
    for prior, evidence in every_prior(num_clients):
        found = NaturalGradient(sweeps=5)(Joint(prior, random_log_lik(num_clients)), evidence, {}, rng())
        graph = evidence.peers.dense(found.moments["Y"])
        assert bool(graph.isfinite().all())
        assert math.isfinite(found.elbo)
        if prior.kind == "rows" and num_clients == 2:
            close(graph.sum(1), torch.ones(2))


def test_the_state_of_a_prior_is_all_of_it() -> None:
    log_lik = random_log_lik(4)
    for (prior, evidence), (fresh, _) in zip(every_prior(4), every_prior(4), strict=True):
        NaturalGradient(sweeps=3)(Joint(prior, log_lik), evidence, {}, rng())
        again = []
        for each in (prior, fresh):
            fresh.load_state_dict(prior.state())
            guide = scattered(Joint(each, log_lik), evidence)
            again.append(MomentELBO().loss(Joint(each, log_lik), guide, evidence))
        assert again[0] == again[1]
