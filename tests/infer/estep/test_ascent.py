"""Coordinate ascent against the printed updates, and the bound that never falls."""

from __future__ import annotations

from functools import partial

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from scool_ppl import GraphPrior, NaturalGradient, OneHot
from scool_ppl.infer.estep.base import Posterior
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.priors.mmsbm import MMSBM
from scool_ppl.infer.priors.sbm import SBM
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import attending, attention, mixed_evidence, mixing, rng, sbm
from tests.helpers.small import close

START = {"z_logits": torch.randn(6, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)}


class Printed:
    """The updates as the papers print them, misprints corrected, by loops over pairs, without Pyro."""

    def __init__(self, log_lik: Tensor, mask: Tensor, z: Tensor, B: Tensor, alpha: Tensor) -> None:
        self.ell, self.mask, self.z, self.B, self.alpha = log_lik, mask, z.clone(), B.clone(), alpha
        self.pairs = [tuple(pair) for pair in mask.nonzero().tolist()]
        self.w = torch.full_like(log_lik, 0.5)

    def update_w(self) -> None:
        odds = self.B.log() - (1 - self.B).log()
        for i, j in self.pairs:
            self.w[i, j] = torch.sigmoid(self.ell[i, j] + self.z[i] @ odds @ self.z[j])

    def update_gamma(self) -> None:
        self.gamma = self.alpha + self.z

    def update_z(self) -> None:
        on, off = self.B.log(), (1 - self.B).log()
        log_z = self.gamma.digamma() - self.gamma.sum(1, keepdim=True).digamma()
        for i, j in self.pairs:
            log_z[i] += self.w[i, j] * on @ self.z[j] + (1 - self.w[i, j]) * off @ self.z[j]
            log_z[j] += self.w[i, j] * on.T @ self.z[i] + (1 - self.w[i, j]) * off.T @ self.z[i]
        self.z = log_z.softmax(1)

    def update_blocks(self, clamp: float) -> None:
        edges, pairs = torch.zeros_like(self.B), torch.zeros_like(self.B)
        for i, j in self.pairs:
            outer = self.z[i][:, None] * self.z[j]
            edges += self.w[i, j] * outer
            pairs += outer
        self.B = (edges / pairs).clamp(clamp, 1 - clamp)


def mask_of(num_clients: int) -> Tensor:
    mask = ~torch.eye(num_clients, dtype=torch.bool)
    mask[0, 2] = mask[3, 1] = False
    return mask


@pytest.mark.parametrize("mask", [~torch.eye(6, dtype=torch.bool), mask_of(6)])
def test_a_sweep_equals_the_printed_updates(mask: Tensor) -> None:
    log_lik = random_log_lik(6)
    prior = sbm(6, 3, alpha=0.8, clamp=0.05, learn_alpha=False)
    printed = Printed(log_lik, mask, START["z_logits"].softmax(1), prior.B.detach(), prior.alpha)
    # A warm start of Omega only, not softened; all clients at once, as printed.
    step = NaturalGradient(sweeps=1, blocks=1, keep=1.0)
    found = step(Joint(prior, log_lik), evidence_of(log_lik, mask), START, rng())
    printed.update_w()
    printed.update_gamma()
    printed.update_z()
    printed.update_blocks(clamp=0.05)
    assert torch.allclose(found.moments["Y"][mask], printed.w[mask], atol=1e-10)
    assert torch.allclose(found.q["pi_concentration"], printed.gamma, atol=1e-10)
    assert torch.allclose(found.moments["z"], printed.z, atol=1e-10)
    assert torch.allclose(prior.B.detach(), printed.B, atol=1e-10)


def check_never_falls(found: Posterior, sweeps: int) -> None:
    """Every bound is as high as the one before, up to rounding; the last is above the first."""
    bounds = torch.tensor(found.bounds, dtype=torch.float64)
    assert len(bounds) == sweeps + 2  # the start, the sweeps, and the prior's parameters at the end
    assert float(bounds.diff().min()) >= -1e-9 * (1 + abs(found.elbo))
    assert found.elbo > found.bounds[0]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("model", "size", "blocks", "groups"), [(SBM, 12, 4, 5), (SBM, 5, 2, 2), (MMSBM, 4, 2, 2)])
def test_the_bound_never_falls(model: type[SBM], size: int, blocks: int, groups: int, seed: int) -> None:
    """From random starts, with clients moving in groups."""
    log_lik = random_log_lik(size, seed)
    prior = model(size, blocks, spectral=False).double()
    step = NaturalGradient(sweeps=50, tol=0, blocks=groups)
    check_never_falls(step(Joint(prior, log_lik), evidence_of(log_lik), {}, rng(seed)), 50)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("prior", ["attention", "mixture"])
def test_the_bound_of_rows_never_falls(prior: str, seed: int) -> None:
    """From random rows; the encoder of attention learns in between, and so does Pi of the mixture."""
    log_lik = random_log_lik(5, seed)
    made: GraphPrior = attention(5) if prior == "attention" else mixing(5, learn=True)
    evidence = attending(log_lik) if prior == "attention" else mixed_evidence(log_lik)
    start = {"Y_logits": 3 * random_log_lik(5, seed + 100)}
    found = NaturalGradient(sweeps=50, tol=0)(Joint(made, log_lik), evidence, start, rng(seed))
    check_never_falls(found, 50)


class Level(GraphPrior):
    """One of four levels, of all edges and squared: a single variable that interacts with itself."""

    def model(self, evidence: Evidence) -> Tensor:
        which = pyro.sample("which", OneHot(torch.ones(4).double() / 4))
        level = (which * torch.linspace(-2, 2, 4).double()).sum()
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=(3 * level**2 - 2).expand(evidence.peers.mask.shape)))


@pytest.mark.filterwarnings("ignore:Level runs in Pyro")  # a square is not linear
@pytest.mark.parametrize("seed", range(4))
def test_a_single_variable_moves_as_a_whole(seed: int) -> None:
    log_lik = random_log_lik(5, seed)
    step = NaturalGradient(sweeps=20, tol=0, blocks=3)
    found = step(Joint(Level(5).double(), log_lik), evidence_of(log_lik), {}, rng(seed))
    assert float(found.moments["which"].sum()) == pytest.approx(1)
    check_never_falls(found, 20)


class Leaning(GraphPrior):
    """Y_ij ~ Bernoulli(sigmoid(lean)); with `given` Y is that probability itself."""

    kind = "edges"

    def __init__(self, num_clients: int, given: bool = False) -> None:
        super().__init__(num_clients)
        self.lean, self.given = torch.nn.Parameter(torch.tensor(0.3)), given

    def model(self, evidence: Evidence) -> Tensor:
        chance = self.lean.sigmoid().expand(evidence.peers.mask.shape)
        with self.edges:
            if self.given:
                return pyro.sample("Y", dist.Delta(chance), obs=chance)
            return pyro.sample("Y", dist.Bernoulli(chance))


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("rate", [0.01, 40.0])
def test_a_step_on_parameters_is_halved_until_the_bound_does_not_fall(given: bool, rate: float) -> None:
    log_lik = torch.full((4, 4), 1.5, dtype=torch.float64)
    prior = Leaning(4, given).double()
    before = prior.lean.detach().clone()
    step = NaturalGradient(optimizer=partial(torch.optim.SGD, lr=rate))
    found = step(Joint(prior, log_lik), evidence_of(log_lik), {}, rng())
    # E_q[Y] of 12 pairs is sigmoid(lean + 1.5), or sigmoid(lean) itself where Y is given.
    w = (before + (0 if given else 1.5)).sigmoid()
    close(found.moments["Y"][0, 1], w)  # of the parameter as it was
    slope = 12 * 1.5 * w * (1 - w) if given else 12 * (w - before.sigmoid())

    def bound(lean: Tensor) -> Tensor:
        p = lean.sigmoid()
        if given:
            return 12 * 1.5 * p
        return 12 * (w * p.log() + (1 - w) * (1 - p).log())

    way = [before + rate * slope * 0.5**halved for halved in range(8)]
    expected = next(lean for lean in way if bound(lean) >= bound(before))
    assert (torch.equal(expected, way[0])) == (given or rate < 1)
    close(prior.lean, expected)
    assert found.bounds[-1] >= found.bounds[-2]
