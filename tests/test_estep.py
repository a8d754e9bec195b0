"""E-steps against the printed updates, each other and planted truths."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from scool_ppl import GraphPrior, InputError, MomentELBO, NaturalGradient, SVIStep
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.infer.estep.base import Posterior
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.priors.dirac import Dirac
from scool_ppl.infer.priors.sbm import SBM
from scool_ppl.look.evidence import Evidence
from tests.conftest import evidence_of, planted, random_log_lik

START = {"z_logits": torch.randn(6, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)}


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sbm(num_clients: int, blocks: int, **options: object) -> SBM:
    prior: SBM = SBM(num_clients, blocks, **options).double()  # type: ignore[arg-type]
    return prior


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


def test_the_gradient_of_alpha_equals_the_corrected_one() -> None:
    log_lik = random_log_lik(5)
    prior, evidence = sbm(5, 3), evidence_of(log_lik)
    prior.alpha = torch.tensor([0.4, 1.3, 2.2]).double()
    joint = Joint(prior, log_lik)
    from scool_ppl.infer.guide import AutoMeanField

    guide = AutoMeanField(joint)
    guide.setup(evidence)
    gamma = torch.rand(5, 3, generator=rng(), dtype=torch.float64) + 0.5
    guide.load({"pi_concentration": gamma})
    raw = dict(prior.named_parameters())["alpha_unconstrained"]
    gradient = torch.autograd.grad(MomentELBO().bound(joint, guide, evidence), raw)[0]
    constraint = prior._pyro_params["alpha"][0]
    slope = torch.autograd.functional.jacobian(torch.distributions.transform_to(constraint), raw.detach()).diagonal()
    alpha = prior.alpha.detach()
    expected = (gamma.digamma() - gamma.sum(1, keepdim=True).digamma()).sum(0)
    expected += 5 * (alpha.sum().digamma() - alpha.digamma())
    assert torch.allclose(gradient / slope, expected, atol=1e-10)


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_never_falls(seed: int) -> None:
    log_lik = random_log_lik(12, seed)
    prior = sbm(12, 4, spectral=False)
    found = NaturalGradient(sweeps=50, tol=0)(Joint(prior, log_lik), evidence_of(log_lik), {}, rng(seed))
    assert len(found.bounds) == 52
    rises = torch.tensor(found.bounds).double().diff()
    assert float(rises.min()) >= -1e-9 * abs(found.elbo)


def test_natural_gradient_and_svi_reach_the_same_optimum() -> None:
    group, log_lik = planted(9, 3, noise=0.7)
    evidence = evidence_of(log_lik)
    found = {}
    for name, step in {
        "natural": NaturalGradient(sweeps=200, tol=1e-9),
        "svi": SVIStep(steps=1500, optim=pyro.optim.Adam({"lr": 0.2})),
    }.items():
        prior = sbm(9, 3, learn_alpha=False)
        found[name] = step(Joint(prior, log_lik), evidence, {}, rng())
    natural, svi = found["natural"], found["svi"]
    assert svi.elbo == pytest.approx(natural.elbo, abs=1e-3)
    assert torch.allclose(natural.moments["Y"], svi.moments["Y"], atol=1e-3)
    together = [found.moments["z"] @ found.moments["z"].T for found in (natural, svi)]  # blocks have no names
    assert torch.allclose(*together, atol=1e-3)
    assert adjusted_rand_score(group, natural.moments["z"].argmax(1)) == 1


def recovered(group: Tensor, log_lik: Tensor, **options: object) -> float:
    """ARI of the blocks found with as many blocks as groups."""
    prior = sbm(len(group), int(group.max()) + 1, **options)
    found = NaturalGradient()(Joint(prior, log_lik), evidence_of(log_lik), {}, rng())
    return float(adjusted_rand_score(group, found.moments["z"].argmax(1)))


@pytest.mark.parametrize("seed", range(3))
def test_the_spectral_start_recovers_planted_blocks_where_edges_are_unsure(seed: int) -> None:
    group, log_lik = planted(100, 5, noise=2.0, seed=seed)
    off = ~torch.eye(100, dtype=torch.bool)
    truth = group[:, None] == group
    assert ((log_lik > 0) == truth)[off].double().mean() < 0.8
    prior = sbm(100, 5)
    found = NaturalGradient()(Joint(prior, log_lik), evidence_of(log_lik), {}, rng(seed))
    assert adjusted_rand_score(group, found.moments["z"].argmax(1)) >= 0.95
    assert ((found.moments["Y"] > 0.5) == truth)[off].double().mean() > 0.96


def test_random_starts_are_worse_which_is_why_there_is_a_spectral_one() -> None:
    """Thin evidence, eight groups of five: spectral finds them, random starts do not."""
    cases = [planted(40, 8, noise=1.0, seed=seed) for seed in range(4)]
    spectral = [recovered(group, log_lik) for group, log_lik in cases]
    random = [recovered(group, log_lik, spectral=False) for group, log_lik in cases]
    assert min(spectral) > 0.9
    assert sum(random) / 4 < 0.75


def test_restarts_keep_the_highest_bound() -> None:
    _, log_lik = planted(40, 8, noise=1.0)
    evidence = evidence_of(log_lik)
    bounds = []
    for restarts in (0, 6):
        prior = sbm(40, 8, spectral=False)
        bounds.append(NaturalGradient(restarts=restarts)(Joint(prior, log_lik), evidence, {}, rng()).elbo)
    assert bounds[1] > bounds[0]


def test_a_warm_start_is_kept_and_softened() -> None:
    _, log_lik = planted(20, 4, noise=0.5)
    evidence = evidence_of(log_lik)
    prior = sbm(20, 8)
    first = NaturalGradient()(Joint(prior, log_lik), evidence, {}, rng())
    again = NaturalGradient()(Joint(prior, log_lik), evidence, first.q, rng(1))
    assert torch.equal(first.moments["z"].argmax(1), again.moments["z"].argmax(1))
    assert again.elbo >= first.elbo - 1e-3 * abs(first.elbo)
    assert len(again.bounds) <= len(first.bounds)


@pytest.mark.parametrize("step", [NaturalGradient(), SVIStep(steps=30)])
@pytest.mark.parametrize(("num_clients", "blocks"), [(1, 8), (2, 8), (2, 1), (5, 1), (5, 8), (3, 3)])
def test_few_clients_and_odd_numbers_of_blocks_are_finite(
    step: NaturalGradient | SVIStep, num_clients: int, blocks: int
) -> None:
    log_lik = random_log_lik(num_clients)
    prior = sbm(num_clients, blocks)
    found = step(Joint(prior, log_lik), evidence_of(log_lik), {}, rng())
    assert all(bool(torch.isfinite(value).all()) for value in (*found.moments.values(), *found.q.values()))
    assert torch.isfinite(torch.tensor(found.bounds)).all()
    assert bool(((prior.B >= 0.1 - 1e-9) & (prior.B <= 0.9 + 1e-9)).all())
    assert torch.allclose(found.moments["z"].sum(1), torch.ones(num_clients).double())


def test_more_blocks_than_groups_find_the_same_graph() -> None:
    group, log_lik = planted(20, 2, noise=0.5)
    truth = group[:, None] == group
    for blocks in (2, 8, 30):
        prior = sbm(20, blocks)
        found = NaturalGradient()(Joint(prior, log_lik), evidence_of(log_lik), {}, rng())
        off = ~torch.eye(20, dtype=torch.bool)
        assert torch.equal((found.moments["Y"] > 0.5)[off], truth[off])
        names = tuple(map(str, range(20)))
        graph = CooperationGraph(found.moments["Y"], names, Peers.everybody(20), memberships=found.moments["z"])
        assert adjusted_rand_score(group, graph.blocks()) == 1


def test_an_isolated_client_and_masked_pairs_have_no_influence() -> None:
    _, log_lik = planted(8, 2, noise=0.3)
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[3] = mask[:, 3] = False
    mask[0, 1] = False
    results: list[Posterior] = []
    for value in (0.0, 50.0, torch.nan):
        changed = torch.where(mask, log_lik, torch.tensor(value).double())
        evidence = evidence_of(torch.nan_to_num(changed), mask)
        results.append(NaturalGradient()(Joint(sbm(8, 4), changed), evidence, {}, rng()))
    for other in results[1:]:
        assert other.bounds == results[0].bounds
        assert torch.equal(other.moments["z"], results[0].moments["z"])
        looked = mask & ~torch.eye(8, dtype=torch.bool)
        assert torch.equal(other.moments["Y"][looked], results[0].moments["Y"][looked])


def test_permuting_the_clients_permutes_the_result() -> None:
    _, log_lik = planted(10, 2, noise=0.5)
    order = torch.randperm(10, generator=rng(3))
    here = NaturalGradient(tol=1e-10, sweeps=200)(Joint(sbm(10, 4), log_lik), evidence_of(log_lik), {}, rng())
    moved = log_lik[order][:, order]
    there = NaturalGradient(tol=1e-10, sweeps=200)(Joint(sbm(10, 4), moved), evidence_of(moved), {}, rng())
    assert torch.allclose(here.moments["Y"][order][:, order], there.moments["Y"], atol=1e-5)


def test_evidence_with_one_pair_of_blocks_wins_over_the_prior() -> None:
    """Without evidence the graph is the prior's; with overwhelming evidence it is the evidence's."""
    strong = 60 * torch.where(torch.arange(6)[:, None] % 2 == torch.arange(6) % 2, 1.0, -1.0).double()
    found = NaturalGradient()(Joint(sbm(6, 3), strong), evidence_of(strong), {}, rng())
    off = ~torch.eye(6, dtype=torch.bool)
    assert torch.allclose(found.moments["Y"][off], (strong > 0).double()[off], atol=1e-6)


def test_dirac_needs_no_inference_and_keeps_its_graph() -> None:
    weights = torch.rand(4, 4, generator=rng()).double().fill_diagonal_(0)
    log_lik = random_log_lik(4)
    found = NaturalGradient()(Joint(Dirac(weights).double(), log_lik), evidence_of(log_lik), {}, rng())
    assert torch.equal(found.moments["Y"], weights)
    assert found.elbo == pytest.approx(float((weights * log_lik).fill_diagonal_(0).sum()))


class Continuous(GraphPrior):
    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            x = pyro.sample("x", dist.Normal(0.0, 1.0))
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=1 - (self.receiver(x) - self.sender(x)).abs()))


class OwnGuide(Continuous):
    """A guide that says all clients are at one learned place, in ten lines."""

    def __init__(self, num_clients: int, learn: bool = True) -> None:
        super().__init__(num_clients)
        self.logits = torch.nn.Parameter(torch.zeros(num_clients, num_clients)) if learn else None

    def guide(self, evidence: Evidence) -> None:
        logits = torch.zeros(self.num_clients, self.num_clients) if self.logits is None else self.logits
        with self.clients:
            pyro.sample("x", dist.Delta(torch.zeros(self.num_clients)))
        with self.edges:
            pyro.sample("Y", dist.Bernoulli(logits=logits))


def test_svi_infers_a_continuous_prior_and_natural_gradient_says_to_use_it() -> None:
    _, log_lik = planted(8, 2, noise=0.3)
    joint, evidence = Joint(Continuous(8).double(), 2 * log_lik), evidence_of(log_lik)
    with pytest.raises(InputError, match=r"'x' is continuous.*SVIStep"):
        NaturalGradient()(joint, evidence, {}, rng())
    found = SVIStep(steps=150)(joint, evidence, {}, rng())
    assert found.elbo > found.bounds[0]
    assert set(found.q) == {"x_loc", "x_scale", "Y_logits"}


def test_svi_trains_a_prior_s_own_guide() -> None:
    log_lik = random_log_lik(4)
    prior = OwnGuide(4).double()
    found = SVIStep(steps=300)(Joint(prior, log_lik), evidence_of(log_lik), {}, rng())
    off = ~torch.eye(4, dtype=torch.bool)
    # With every x at 0 the optimum is known: logit w = log_lik + 1.
    assert torch.allclose(found.moments["Y"][off], torch.sigmoid(log_lik + 1)[off], atol=1e-2)
    with pytest.raises(InputError, match="writes its own guide"):
        NaturalGradient()(Joint(prior, log_lik), evidence_of(log_lik), {}, rng())


def test_svi_without_any_parameter_raises() -> None:
    log_lik = random_log_lik(4)
    with pytest.raises(InputError, match="no learnable parameter"):
        SVIStep(steps=2)(Joint(OwnGuide(4, learn=False), log_lik), evidence_of(log_lik), {}, rng())


@pytest.mark.parametrize("step", [NaturalGradient(), SVIStep(steps=20)])
def test_an_e_step_repeats_and_leaves_the_world_alone(step: NaturalGradient | SVIStep) -> None:
    log_lik = random_log_lik(6)
    state, results = torch.get_rng_state(), []
    for _ in range(2):
        results.append(step(Joint(sbm(6, 3), log_lik), evidence_of(log_lik), {}, rng()))
    assert results[0].bounds == results[1].bounds
    assert all(torch.equal(results[0].moments[name], results[1].moments[name]) for name in results[0].moments)
    assert torch.equal(state, torch.get_rng_state())
    assert not pyro.get_param_store().keys()
    assert pyro.settings.get("module_local_params") is False


@pytest.mark.parametrize("options", [{"sweeps": 0}, {"step": 0.0}, {"step": 1.5}, {"blocks": 0}, {"keep": 0.0}])
def test_settings_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected"):
        NaturalGradient(**options)  # type: ignore[arg-type]


def test_closed_form_parameters_are_laid_out_as_their_gradients_are() -> None:
    """torch warns in the backward pass where they are not, and MMSBM's B comes out of an einsum that transposes."""
    from scool_ppl.infer.estep.base import set_closed_form

    class Transposed(SBM):
        def closed_form(self, moments: dict[str, Tensor], evidence: Evidence) -> dict[str, Tensor]:
            return {"B": torch.full((2, 3), 0.5).T[:2, :2]}

    prior = Transposed(3, 2)
    set_closed_form(prior, {}, Evidence.given(loss=torch.zeros(3, 3)))
    assert all(parameter.is_contiguous() for parameter in prior.parameters())
    assert torch.allclose(prior.B, torch.full((2, 2), 0.5))
