"""The graph summed out, against the sum over all graphs of three clients."""

from __future__ import annotations

import itertools
import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from torch import Tensor

from scool_ppl import GraphPrior, InputError, OneHot
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.marginal import Marginal
from scool_ppl.infer.moments import log_joint
from scool_ppl.infer.priors import Box, Dirac, Joint
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import (
    Positions,
    mixed_evidence,
    mixing,
    sbm,
    some_masked,
    with_self,
    without_client,
)
from tests.helpers.small import close, normal


class Teachers(GraphPrior):
    """Everybody picks one teacher: Y_i ~ Categorical(softmax_j x_j), x_j ~ Normal(0, 1)."""

    kind = "rows"

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            x = pyro.sample("x", dist.Normal(torch.zeros(()).double(), 1.0))
        logits = self.row_logits(self.sender(x).expand(evidence.peers.mask.shape))
        with self.clients:
            return pyro.sample("Y", OneHot(logits=logits))


def summed(joint: Joint, evidence: Evidence, latents: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """log of the sum of p(Y, Z, D) over all Y at these Z, and E[Y | Z, D]: one graph after the other."""
    mask = evidence.peers.mask
    if joint.prior.kind == "edges":
        spots = mask.nonzero().tolist()
        graphs = []
        for bits in itertools.product([0.0, 1.0], repeat=len(spots)):
            graph = torch.zeros(mask.shape).double()
            for (i, j), bit in zip(spots, bits, strict=True):
                graph[i, j] = bit
            graphs.append(graph)
    else:
        choices = [row.nonzero().flatten().tolist() or [0] for row in mask]
        graphs = [torch.eye(mask.shape[1]).double()[list(picked)] for picked in itertools.product(*choices)]
    scores = torch.stack([log_joint(joint, {**latents, "Y": graph}, evidence)[0] for graph in graphs])
    shares = scores.softmax(0)
    mean = sum(share * graph for share, graph in zip(shares, graphs, strict=True))
    return scores.logsumexp(0), torch.where(mask, torch.as_tensor(mean), 0.0)


def cases() -> dict[str, tuple[Joint, Evidence, dict[str, Tensor]]]:
    log_lik, x = random_log_lik(3), {"x": normal(3, 2)}
    z = torch.eye(2).double()[[0, 1, 0]]
    blocks = {"pi": normal(3, 2).softmax(-1), "z": z}
    table = Peers(torch.ones(3, 2, dtype=torch.bool), torch.tensor([[1, 2], [2, 0], [0, 1]]))
    tempered = sbm(3, 2, temper=3.0)
    return {
        "edges": (Joint(Positions(3).double(), log_lik), evidence_of(log_lik), x),
        "masked pairs": (Joint(Positions(3).double(), log_lik), evidence_of(log_lik, some_masked(3)), x),
        "an absent client": (
            Joint(Positions(3).double(), log_lik),
            without_client(evidence_of(log_lik), 1),
            x,
        ),
        "a table": (
            Joint(Positions(3).double(), log_lik[:, :2]),
            Evidence.given(loss=log_lik[:, :2], peers=table),
            x,
        ),
        "a scaled prior": (Joint(tempered, log_lik), evidence_of(log_lik), blocks),
        "rows": (Joint(Teachers(3), log_lik), evidence_of(log_lik), {"x": normal(3)}),
        "rows, probabilities": (
            Joint(mixing(3, log_pi=normal(3, 3).log_softmax(-1)), log_lik),
            mixed_evidence(log_lik, with_self(3)),
            {},
        ),
    }


@pytest.mark.parametrize("case", cases())
def test_it_is_the_sum_over_all_graphs(case: str) -> None:
    joint, evidence, latents = cases()[case]
    total, mean = summed(joint, evidence, latents)
    trace = poutine.trace(poutine.condition(Marginal(joint, evidence), data=latents)).get_trace()
    close(trace.log_prob_sum(), total)
    close(trace.nodes["_RETURN"]["value"], mean)
    close(trace.nodes["Y"]["value"], mean)


def test_a_scale_from_outside_scales_everything() -> None:
    joint, evidence, latents = cases()["a scaled prior"]
    program = poutine.condition(Marginal(joint, evidence), data=latents)
    once = poutine.trace(program).get_trace().log_prob_sum()
    close(poutine.trace(poutine.scale(program, scale=2.0)).get_trace().log_prob_sum(), 2 * once)


@pytest.mark.parametrize("prior", [Box(3), Dirac(torch.ones(3, 3) / 3)], ids=["continuous", "given"])
def test_a_graph_that_is_not_discrete_stays(prior: GraphPrior) -> None:
    log_lik, graph = random_log_lik(3), {"Y": torch.full((3, 3), 0.25).double()}
    joint, evidence = Joint(prior.double(), log_lik), evidence_of(log_lik)
    given = graph if isinstance(prior, Box) else {}
    trace = poutine.trace(poutine.condition(Marginal(joint, evidence), data=given)).get_trace()
    close(trace.log_prob_sum(), log_joint(joint, given, evidence)[0])


def test_nuts_finds_the_posterior_that_a_grid_finds() -> None:
    """One latent number: logit P(Y_ij) = a, a ~ Normal(0, 1)."""

    class Common(GraphPrior):
        def model(self, evidence: Evidence) -> Tensor:
            a = pyro.sample("a", dist.Normal(0.0, 1.0))  # float32, beside evidence in float64
            with self.edges:
                return pyro.sample("Y", dist.Bernoulli(logits=a.expand(evidence.peers.mask.shape)))

    log_lik = random_log_lik(3) + 1
    evidence, off = evidence_of(log_lik), ~torch.eye(3, dtype=torch.bool)
    program = Marginal(Joint(Common(3).double(), log_lik), evidence)
    grid = torch.linspace(-6, 6, 2001).double()
    p = grid.sigmoid()[:, None]
    scores = -grid.square() / 2 + (1 - p + p * log_lik[off].exp()).log().sum(1)
    mean = float((scores.softmax(0) * grid).sum())
    spread = math.sqrt(float((scores.softmax(0) * (grid - mean).square()).sum()))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mcmc = MCMC(NUTS(program), num_samples=300, warmup_steps=100, disable_progbar=True)
        mcmc.run()
    draws = mcmc.get_samples()["a"]
    assert float(draws.mean()) == pytest.approx(mean, abs=0.2)
    assert float(draws.std()) == pytest.approx(spread, abs=0.15)


def test_an_autoguide_needs_nothing_hidden() -> None:
    joint, evidence, _ = cases()["edges"]
    program = Marginal(joint, evidence)
    guide = AutoNormal(program)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        svi = SVI(program, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO(num_particles=5))
        losses = [svi.step() for _ in range(60)]
    pyro.clear_param_store()
    assert sum(losses[-10:]) < sum(losses[:10])


class Afterwards(Positions):
    """What follows the graph depends on it."""

    def model(self, evidence: Evidence) -> Tensor:
        graph = super().model(evidence)
        pyro.factor("sparse", -graph.sum())
        return graph


class Halved(Positions):
    def model(self, evidence: Evidence) -> Tensor:
        return super().model(evidence) / 2


class Counted(GraphPrior):
    def model(self, evidence: Evidence) -> Tensor:
        with self.edges:
            return pyro.sample("Y", dist.Poisson(torch.ones(evidence.peers.mask.shape).double()))


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        (Afterwards(3), "goes on after 'Y' with the site 'sparse'; use marginal=False"),
        (Halved(3), "something else than its site 'Y'"),
        (Counted(3), "samples 'Y' from Poisson; use Bernoulli"),
    ],
)
def test_what_cannot_be_summed_out_is_refused(prior: GraphPrior, words: str) -> None:
    log_lik = random_log_lik(3)
    with pytest.raises(InputError, match=words):
        Marginal(Joint(prior.double(), log_lik), evidence_of(log_lik))()


def test_a_likelihood_of_the_whole_graph_is_refused() -> None:
    joint = Joint(Positions(3).double(), lambda graph: -graph.square().sum())
    with pytest.raises(InputError, match="function of the whole graph; use marginal=False"):
        Marginal(joint, evidence_of(random_log_lik(3)))()
