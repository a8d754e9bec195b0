"""SBM: its closed forms, its spectral start, and planted blocks."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor
from torch.nn.functional import one_hot

from scool_ppl import (
    AutoMeanField,
    InputError,
    MomentELBO,
    NaturalGradient,
    SVIStep,
)
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.infer.moments import log_joint
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.priors.sbm import SBM
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, planted, random_log_lik
from tests.helpers.priors import (
    rng,
    sbm,
)
from tests.helpers.small import close, normal, uniform


def test_the_gradient_of_alpha_equals_the_corrected_one() -> None:
    log_lik = random_log_lik(5)
    prior, evidence = sbm(5, 3), evidence_of(log_lik)
    prior.alpha = torch.tensor([0.4, 1.3, 2.2]).double()
    joint = Joint(prior, log_lik)
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


def test_evidence_with_one_pair_of_blocks_wins_over_the_prior() -> None:
    """Without evidence the graph is the prior's; with overwhelming evidence it is the evidence's."""
    strong = 60 * torch.where(torch.arange(6)[:, None] % 2 == torch.arange(6) % 2, 1.0, -1.0).double()
    found = NaturalGradient()(Joint(sbm(6, 3), strong), evidence_of(strong), {}, rng())
    off = ~torch.eye(6, dtype=torch.bool)
    assert torch.allclose(found.moments["Y"][off], (strong > 0).double()[off], atol=1e-6)


def test_the_closed_form_of_b_counts_edges_of_pairs_of_blocks() -> None:
    """Hard memberships: B is a share of edges, clamped; a pair of blocks without a pair of clients keeps its B."""
    prior = sbm(4, 3, clamp=0.1)
    z = one_hot(torch.tensor([0, 0, 0, 1]), 3).double()
    graph = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 1], [1, 0, 0, 1], [0, 0, 0, 0]]).double()
    found = prior.closed_form({"Y": graph, "z": z}, evidence_of(random_log_lik(4)))["B"]
    close(found[0, 0], torch.tensor(0.5))  # three of the six pairs inside block 0
    close(found[:2, :2], torch.tensor([[0.5, 0.9], [0.1, 0.9]]), 1e-6)  # all of three, none of three, no pair
    close(found[2], prior.B[2])


def test_a_table_of_peers_gives_the_same_b() -> None:
    prior, z = sbm(4, 3), normal(4, 3).softmax(1)
    senders = torch.tensor([[1, 3], [0, 2], [3, 1], [2, 0]])
    graph = uniform(4, 4)
    mask = torch.zeros(4, 4, dtype=torch.bool).scatter(1, senders, True)
    dense = prior.closed_form({"Y": graph, "z": z}, Evidence.given(loss=graph, peers=Peers(mask)))["B"]
    peers = Peers(torch.ones(4, 2, dtype=torch.bool), senders)
    table = graph.gather(1, senders)
    close(prior.closed_form({"Y": table, "z": z}, Evidence.given(loss=table, peers=peers))["B"], dense)


def test_temper_divides_the_priors_say_on_every_edge() -> None:
    evidence, scores = evidence_of(random_log_lik(4)), []
    values = {
        "pi": torch.full((4, 2), 0.5),
        "z": torch.eye(2)[torch.tensor([0, 0, 1, 1])],
        "Y": torch.eye(4)[[1, 0, 3, 2]],
    }
    values = {name: value.double() for name, value in values.items()}
    for temper in (1.0, 4.0):
        trace = log_joint(sbm(4, 2, temper=temper), values, evidence)[1]
        trace.compute_log_prob()
        scores.append([float(trace.nodes[site]["log_prob_sum"].detach()) for site in ("pi", "z", "Y")])
    assert scores[1][:2] == scores[0][:2]
    assert scores[1][2] == pytest.approx(scores[0][2] / 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_blocks": 0}, "at least one block"),
        ({"alpha": 0.0}, "a positive alpha"),
        ({"temper": -1.0}, "a positive alpha and temper"),
        ({"clamp": 0.5}, "a clamp between 0 and 0.5"),
        ({"inside": 0.1, "outside": 0.9}, "expected 0 < outside < inside < 1"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        SBM(4, **options)  # type: ignore[arg-type]


def test_a_narrow_table_starts_from_its_communities(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 40
    group, senders = (
        torch.arange(size) % 2,
        torch.stack([torch.randperm(size, generator=rng(i))[:12] for i in range(size)]),
    )
    peers = Peers(senders != torch.arange(size)[:, None], senders)
    log_lik = torch.where(group[:, None] == group[senders], 4.0, -4.0).double()
    monkeypatch.setattr(Peers, "dense", lambda *_, **__: pytest.fail("a matrix of all pairs"))
    (start,) = SBM(size, 5).double().starts(Evidence.given(loss=-log_lik, peers=peers), log_lik, rng())
    assert start["z"].shape == (size, 5)
    close(start["z"].sum(1), torch.ones(size).double(), 1e-12)
    assert adjusted_rand_score(group.numpy(), start["z"].argmax(1).numpy()) == 1
