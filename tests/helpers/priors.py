"""Every prior on a handful of clients, its evidence by hand, and a guide at a random q."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import Predictive
from pyro.nn import PyroParam
from torch import Tensor

from scool_ppl import AutoMeanField, BlockBernoulli, GraphPrior, OneHot
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.priors import MMSBM, SBM, Attention, FilterEncoder, Joint, ModelMixture
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.small import normal, uniform


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_masked(num_clients: int) -> Tensor:
    """Everybody but oneself, less two pairs."""
    mask = ~torch.eye(num_clients, dtype=torch.bool)
    mask[0, 2] = mask[num_clients - 1, 1] = False
    return mask


def with_self(num_clients: int) -> Tensor:
    """Everybody and oneself, less two pairs."""
    mask = torch.ones(num_clients, num_clients, dtype=torch.bool)
    mask[0, 2] = mask[1, 0] = False
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


def rows_over(mask: Tensor, values: Tensor) -> Tensor:
    """Softmax of each row over its unmasked entries, one by one."""
    out = torch.zeros_like(values)
    for i in range(len(values)):
        others = mask[i].nonzero().flatten()
        out[i, others] = values[i, others].softmax(0)
    return out


def check_draws_of_rows(prior: GraphPrior, evidence: Evidence, probabilities: Tensor, number: int = 500) -> None:
    """Draws of "Y" are one-hot rows with these probabilities (K, K), and never what has probability 0."""
    size = len(probabilities)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = Predictive(prior, num_samples=number, return_sites=["Y"])(evidence)["Y"].view(number, size, size)
    assert torch.equal(drawn.sum(-1), torch.ones(number, size).to(drawn))
    assert not bool(drawn[:, probabilities == 0].any())
    error = (probabilities * (1 - probabilities) / number).sqrt()
    assert bool(((drawn.double().mean(0) - probabilities).abs() <= 5 * error + 1e-9).all())


# Block models.


def sbm(num_clients: int, blocks: int, **options: Any) -> SBM:
    prior: SBM = SBM(num_clients, blocks, **options).double()
    return prior


def mmsbm(num_clients: int, blocks: int = 2, **options: Any) -> MMSBM:
    prior: MMSBM = MMSBM(num_clients, blocks, **options).double()
    return prior


class Distant(GraphPrior):
    """Blocks and distances: logit P(Y_ij) = logit B[z_i, z_j] - slope d_ij, B and the slope learned."""

    def __init__(self, num_clients: int, blocks: int = 2) -> None:
        super().__init__(num_clients)
        self.B = PyroParam(0.2 + 0.6 * uniform(blocks, blocks, seed=3), constraint=dist.constraints.unit_interval)
        self.slope = torch.nn.Parameter(torch.tensor(0.8))
        self.distance = uniform(num_clients, num_clients, seed=4)

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            z = pyro.sample("z", OneHot(torch.ones(len(self.B)) / len(self.B)))
        return self.edge(evidence, self.receiver(z), self.sender(z))

    def edge(self, evidence: Evidence, receiver: Tensor, sender: Tensor) -> Tensor:
        with self.edges:
            away = evidence.peers.take(self.distance)
            return pyro.sample("Y", BlockBernoulli(receiver, sender, self.B, offset=-self.slope * away))


class Several(Distant):
    """A matrix for near pairs, another for far ones."""

    def __init__(self, num_clients: int, blocks: int = 2) -> None:
        super().__init__(num_clients, blocks)
        self.each = torch.nn.Parameter(normal(2, blocks, blocks, seed=5))

    def edge(self, evidence: Evidence, receiver: Tensor, sender: Tensor) -> Tensor:
        with self.edges:
            far = (evidence.peers.take(self.distance) > 0.5).long()
            return pyro.sample("Y", BlockBernoulli(receiver, sender, self.each.sigmoid()[far]))


# Attention.


def updates(num_clients: int, seed: int = 40) -> dict[str, Tensor]:
    """theta^{t+1/2} - theta^0 of MLPs with three inputs, two hidden units and two classes."""
    shapes = {"1.weight": (2, 3), "1.bias": (2,), "3.weight": (2, 2), "3.bias": (2,)}
    return {name: normal(num_clients, *shape, seed=seed + len(name) + shape[0]) for name, shape in shapes.items()}


def attention(num_clients: int, learn: bool = True, **options: Any) -> Attention:
    """Attention with the encoder of these networks, always the same one."""
    prior = Attention(num_clients, **{"scale": 1.5, **options})
    with torch.random.fork_rng():
        torch.manual_seed(3)
        prior.encoder = FilterEncoder({"1": 4, "3": 3}).requires_grad_(learn)
    found: Attention = prior.double()
    return found


def with_updates(evidence: Evidence, shown: dict[str, Tensor]) -> Evidence:
    """The same evidence, and these updates."""
    evidence._shown["updates"] = shown
    return evidence


def attending(log_lik: Tensor, mask: Tensor | None = None, includes_self: bool = False) -> Evidence:
    """Evidence that comes with the clients' updates."""
    evidence = Evidence.given(loss=-log_lik, includes_self=includes_self)
    if mask is not None:
        evidence.peers = evidence.peers._replace(mask=evidence.peers.mask & mask)
    return with_updates(evidence, updates(len(log_lik)))


# Mixtures.


def mixing(num_clients: int, learn: bool = False, log_pi: Tensor | None = None) -> ModelMixture:
    prior: ModelMixture = ModelMixture(num_clients, learn=learn).double()
    if log_pi is not None:
        prior.log_pi = log_pi
    return prior


def mixed_evidence(log_lik: Tensor, mask: Tensor | None = None) -> Evidence:
    """Evidence in which clients are candidates for themselves."""
    peers = Peers.everybody(len(log_lik), includes_self=True)
    return Evidence.given(loss=-log_lik, peers=peers if mask is None else Peers(mask))


# A prior with a continuous latent, and a block model with known blocks.


class Positions(GraphPrior):
    """A place x_i for every client: logit P(Y_ij) = 1 - |x_i - x_j|^2."""

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            x = pyro.sample("x", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        away = (self.receiver(x) - self.sender(x)).square().sum(-1)
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=1 - away))


def known_blocks(num_clients: int = 3, blocks: int = 2, mask: Tensor | None = None) -> tuple[Joint, Evidence]:
    """An SBM whose B has four different entries, with random evidence: small enough to enumerate."""
    log_lik = random_log_lik(num_clients)
    prior = sbm(num_clients, blocks, alpha=0.7)
    prior.B = torch.tensor([[0.85, 0.3], [0.2, 0.6]], dtype=torch.float64)[:blocks, :blocks]
    return Joint(prior, log_lik), evidence_of(log_lik, mask)


def without_client(evidence: Evidence, client: int) -> Evidence:
    """The same evidence in a round in which this client is absent."""
    evidence.present = torch.arange(evidence.num_clients) != client
    evidence.peers = evidence.peers.among(evidence.present)
    return evidence
