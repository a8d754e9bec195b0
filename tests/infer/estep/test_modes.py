"""ModeSearch ends at the best configuration of all where these can be counted, and its bound never falls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyro
import pytest
import torch
from torch import Tensor

from scool_ppl.base.randomness import generator
from scool_ppl.errors import InputError
from scool_ppl.graph.blocks import by_appearance
from scool_ppl.infer.distributions import OneHot
from scool_ppl.infer.estep.modes import ModeSearch, _Climb
from scool_ppl.infer.moments import log_joint
from scool_ppl.infer.priors.base import GraphPrior, Joint
from scool_ppl.infer.priors.partition import Partition
from scool_ppl.infer.priors.sbm import SBM
from scool_ppl.look.evidence import Evidence
from scool_ppl.look.images import LEAST, BlockMixture, explained
from scool_ppl.look.likelihoods import RowWise
from tests.helpers.partitions import partitions

K = 5


def evidence_of(seed: int, num_clients: int = K, spread: float = 1.0) -> Evidence:
    random = torch.Generator().manual_seed(seed)
    groups = torch.randint(2, (num_clients,), generator=random)
    base = torch.where(groups[:, None] == groups, 0.6, 1.2)[..., None, None]
    losses = base + spread * torch.rand(num_clients, num_clients, 6, 1, generator=random, dtype=torch.float64)
    own = 1.0 + torch.rand(num_clients, 3, 1, generator=random, dtype=torch.float64)
    return Evidence.given(loss=losses.mean((2, 3)), image_loss=losses, own_image_loss=own, chance=9.0)


def joint_of(evidence: Evidence, **options: float) -> Joint:
    return Joint(Partition(evidence.num_clients, **options), BlockMixture()(evidence))


def configuration(labels: tuple[int, ...], heard: tuple[int, ...]) -> dict[str, Tensor]:
    z = torch.nn.functional.one_hot(torch.tensor(labels), len(labels)).double()
    return {"z": z, "heard": torch.tensor(heard, dtype=torch.float64)}


@pytest.mark.parametrize("seed", range(2))
def test_it_finds_the_best_of_all_partitions(seed: int) -> None:
    """52 partitions of five clients, and 32 ways to hear them."""
    evidence = evidence_of(seed)
    joint = joint_of(evidence, alpha=0.3, doubt=0.1)
    with torch.no_grad():
        best = max(
            float(log_joint(joint, configuration(labels, heard), evidence)[0])
            for labels in partitions(K)
            for heard in itertools.product((0, 1), repeat=K)
        )
    found = ModeSearch()(joint, evidence, {}, generator(0, "test"))
    assert found.elbo == pytest.approx(best, abs=1e-9)
    assert list(found.bounds) == sorted(found.bounds)
    assert set(found.moments) == {"z", "heard", "Y"}
    same = found.moments["z"] @ found.moments["z"].T * found.moments["heard"]
    assert torch.equal(found.moments["Y"], same.fill_diagonal_(0))


def test_a_round_goes_on_from_the_last_ones_configuration() -> None:
    evidence = evidence_of(3)
    joint = joint_of(evidence)
    first = ModeSearch()(joint, evidence, {}, generator(0, "test"))
    again = ModeSearch()(joint, evidence, first.q, generator(1, "test"))
    assert again.bounds[0] == pytest.approx(first.elbo)
    assert len(again.bounds) == 2, "nothing to change, and the bound at the end"
    assert torch.equal(again.moments["Y"], first.moments["Y"])


def test_a_network_that_says_nonsense_is_not_heard_and_listens() -> None:
    losses = torch.full((8, 8, 30, 1), 0.5)
    losses[:, 2] = 6.0
    own = torch.ones(8, 3, 1)
    evidence = Evidence.given(loss=losses.mean((2, 3)), image_loss=losses, own_image_loss=own, chance=9.0)
    found = ModeSearch()(joint_of(evidence), evidence, {}, generator(0, "test")).moments
    assert found["heard"].tolist() == [1, 1, 0, 1, 1, 1, 1, 1]
    assert found["z"].argmax(1).unique().numel() == 1
    assert found["Y"][:, 2].sum() == 0
    assert found["Y"][2].sum() == 7


def test_any_program_of_discrete_sites_will_do() -> None:
    class Pairs(GraphPrior):
        """An edge costs a nat; edges in a triangle that is closed are worth two: not linear in Y."""

        def model(self, evidence: Evidence) -> Tensor:
            with self.clients:
                z = pyro.sample("z", OneHot(probs=torch.ones(self.num_clients, 2)))
            with self.edges:
                graph = pyro.sample("Y", pyro.distributions.Bernoulli(0.5 * torch.ones(3, 3)))
            pyro.factor("together", -(z.sum(0) - 1.5).square().sum())
            pyro.factor("triangle", 5.0 * graph[0, 1] * graph[1, 2] * graph[2, 0] - graph.sum())
            return graph

    evidence = Evidence.given(loss=torch.zeros(3, 3))
    joint = Joint(Pairs(3), torch.zeros(3, 3))
    found = ModeSearch()(joint, evidence, {}, generator(0, "test"))
    assert found.moments["Y"].tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert sorted(found.moments["z"].sum(0).tolist()) == [1, 2]


def test_sites_that_are_not_discrete_are_refused() -> None:
    evidence = Evidence.given(loss=torch.zeros(3, 3))
    with pytest.raises(InputError, match="site 'pi' is dirichlet"):
        ModeSearch()(Joint(SBM(3, 2), torch.zeros(3, 3)), evidence, {}, generator(0, "test"))
    with pytest.raises(InputError, match="moves=0"):
        ModeSearch(moves=0)


def test_rows_that_a_change_touches_are_scored_as_whole_graphs_are() -> None:
    """The same search with a likelihood that hides that it is a sum over rows."""
    evidence = evidence_of(3, num_clients=9)
    by_rows = joint_of(evidence, alpha=0.1, doubt=0.05)
    assert isinstance(by_rows.log_lik, RowWise)
    both = (by_rows, dense_of(by_rows, evidence))
    quick, slow = (ModeSearch()(joint, evidence, {}, generator(0, "test")) for joint in both)
    assert quick.bounds == pytest.approx(slow.bounds, abs=1e-9)
    assert torch.equal(quick.moments["Y"], slow.moments["Y"])


def dense_of(joint: Joint, evidence: Evidence) -> Joint:
    """The same term by einsum over all rows, which can be vectorised over graphs."""
    images = explained(evidence.image_loss, evidence.own_image_loss, float(evidence.chance), 2.0)

    def term(graph: Tensor) -> Tensor:
        others = graph * (1 - torch.eye(len(graph), dtype=graph.dtype))
        heard = others.sum(1)
        total = torch.einsum("ij,ijnt->int", others, images.density)
        mean = (total / heard.clamp(min=LEAST)[:, None, None]).clamp(min=LEAST)
        said = ((mean.log() + images.unit) * images.counts).sum((1, 2))
        share = heard.clamp(max=1)
        return (share * said + (1 - share) * images.alone).sum()

    return Joint(joint.prior, term)


def test_what_an_earlier_climb_went_through_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several starts lead to the same partition, whose neighbours are scored once, whatever its labels are called."""
    asked: list[tuple[int, ...]] = []
    plain = _Climb.changes

    def noted(self: _Climb, sites: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        asked.append(tuple(by_appearance(sites["z"].tolist()).tolist()))
        return plain(self, sites)

    monkeypatch.setattr(_Climb, "changes", noted)
    evidence = evidence_of(3, 8, spread=0.1)
    found = ModeSearch(searches=3)(joint_of(evidence), evidence, {}, generator(0, "test"))
    assert len(asked) >= 2
    assert len(asked) == len(set(asked))
    monkeypatch.setattr(_Climb, "met", lambda *_: False)
    again = ModeSearch(searches=3)(joint_of(evidence), evidence, {}, generator(0, "test"))
    assert len(asked) > 2 * len(set(asked))
    assert again.elbo == pytest.approx(found.elbo, abs=1e-9)
