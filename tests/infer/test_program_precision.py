"""Programs run in float64 whatever their constants were made in, and nobody else notices."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import SVI, Predictive
from pyro.nn import PyroParam
from torch import Tensor

from scool_ppl import BlockBernoulli, GraphPrior, MomentELBO, NaturalGradient, OneHot, SVIStep
from scool_ppl.infer.estep.svi import OwnGuide
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.priors import Joint
from scool_ppl.infer.program import in_double, promoted
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import rng

KINDS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda rows: rows,
    "parameter": torch.nn.Parameter,
    "pyro parameter": lambda rows: PyroParam(rows, constraint=dist.constraints.positive),
    "list": lambda rows: [rows],
    "numpy": lambda rows: rows.numpy(),
}
K, GROUPS = 4, 3
ROWS = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])


class Nested(GraphPrior):
    """Groups u of clients lie in supergroups u @ rows, rows of any kind."""

    def __init__(self, rows: Any = ROWS) -> None:
        super().__init__(K)
        self.rows = rows
        self.register_buffer("B", torch.tensor([[0.7, 0.2], [0.1, 0.6]]))

    def model(self, evidence: Any) -> Tensor:
        with self.clients:
            u = pyro.sample("u", OneHot(torch.ones(GROUPS) / GROUPS))
        rows = self.rows[0] if isinstance(self.rows, list) else torch.as_tensor(self.rows)
        z = u @ torch.eye(GROUPS) @ rows @ torch.eye(2)  # constants of torch's default precision
        with self.edges:
            return pyro.sample("Y", BlockBernoulli(self.receiver(z), self.sender(z), self.B))


class Places(GraphPrior):
    """Places in the plane, seen through constants and layers, and a covariance that is made in the program."""

    def __init__(self) -> None:
        super().__init__(K)
        self.linear = torch.nn.Linear(2, 2)
        self.rotation = torch.eye(2)

    def model(self, evidence: Any) -> Tensor:
        with self.clients:
            x = pyro.sample("x", dist.MultivariateNormal(torch.zeros(2), torch.eye(2) * 2.0))
            scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        seen = self.linear(x) @ self.rotation + evidence.loss.float() @ x
        away = (self.receiver(seen) - self.sender(seen)).square().sum(-1) * self.receiver(scale)
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=torch.ones(K, K) @ torch.eye(K).to(away) - away))

    def guide(self, evidence: Any) -> None:
        with self.clients:
            pyro.sample("x", dist.Normal(torch.zeros(2), 1.0).to_event(1))
            pyro.sample("scale", dist.LogNormal(0.0, 0.1))
        with self.edges:
            logits = self.linear.weight @ torch.ones(2, K * K)
            pyro.sample("Y", dist.Bernoulli(logits=logits.sum(0).view(K, K)))


def every_way(prior: GraphPrior) -> None:
    """By itself, traced, drawn from, in SVI."""
    log_lik = random_log_lik(K)
    evidence = evidence_of(log_lik)
    assert prior(evidence).dtype == torch.float64
    trace = poutine.trace(prior).get_trace(evidence)
    assert trace.log_prob_sum().dtype == torch.float64
    assert {site["value"].dtype for name, site in trace.nodes.items() if name in ("x", "u", "scale", "Y")} == {
        torch.float64
    }
    assert Predictive(prior, num_samples=2)(evidence)["Y"].dtype == torch.float64
    joint = Joint(prior, log_lik.float())
    guide = OwnGuide(prior) if isinstance(prior, Places) else AutoMeanField(joint)
    guide(evidence)
    with pyro.settings.context(module_local_params=True):
        svi = SVI(joint, guide, pyro.optim.Adam({"lr": 0.01}), MomentELBO())
        assert all(torch.tensor(svi.step(evidence)).isfinite() for _ in range(2))
    step = SVIStep(steps=2, num_samples=2) if isinstance(prior, Places) else NaturalGradient(sweeps=2)
    assert torch.tensor(step(joint, evidence, {}, rng()).elbo).isfinite()


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_user_declares_is_in_the_precision_of_the_graph(kind: str) -> None:
    with torch.random.fork_rng():
        every_way(Nested(KINDS[kind](ROWS.clone())))


def test_constants_made_in_the_program_promote() -> None:
    with torch.random.fork_rng():
        every_way(Places())


def test_the_start_of_a_parameter_is_what_it_was_in_its_own_precision() -> None:
    """So that runs keep their bits: unconstrained first, then in float64."""
    prior = Nested(PyroParam(ROWS, constraint=dist.constraints.interval(0.05, 0.95)))
    unconstrained = torch.distributions.transform_to(dist.constraints.interval(0.05, 0.95)).inv(ROWS)
    assert torch.equal(prior.rows_unconstrained, unconstrained.double())
    assert {value.dtype for value in prior.state_dict().values()} == {torch.float64}
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in prior.parameters())


def test_whole_numbers_and_masks_stay_what_they_are() -> None:
    prior = Nested()
    prior.place, prior.seen = torch.arange(3), torch.ones(3, dtype=torch.bool)
    assert prior.place.dtype == torch.long
    assert prior.seen.dtype == torch.bool


def test_no_default_changes_and_no_other_thread_is_touched() -> None:
    """Inside a program torch makes float32 as always, and elsewhere it refuses what it always refuses."""
    refused: list[str] = []

    def elsewhere() -> None:
        try:
            torch.eye(2) @ torch.eye(2).double()
        except RuntimeError as error:
            refused.append(str(error))

    class Asking(Nested):
        def model(self, evidence: Any) -> Tensor:
            assert torch.get_default_dtype() == torch.float32
            assert torch.ones(2).dtype == torch.float32
            other = threading.Thread(target=elsewhere)
            other.start()
            other.join()
            return super().model(evidence)

    with torch.random.fork_rng():
        Asking()(evidence_of(random_log_lik(K)))
    elsewhere()
    assert len(refused) == 2


def test_only_what_torch_refuses_is_done_again() -> None:
    single, double = torch.rand(3, 3), torch.rand(3, 3).double()
    with promoted():
        assert (single @ single).dtype == torch.float32
        assert torch.equal(single @ double, single.double() @ double)
        assert torch.equal(torch.einsum("ij,jk->ik", double, single), double @ single.double())
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            single @ torch.rand(2, 2).double()
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            single @ torch.rand(2, 2)


def test_what_is_written_into_keeps_its_precision() -> None:
    single, double = torch.zeros(3), torch.arange(3).double()
    with promoted():
        single.index_add_(0, torch.arange(3), double)
        single[torch.arange(2)] = double[:2] + 1
    assert torch.equal(single, torch.tensor([1.0, 2.0, 2.0]))


def test_distributions_are_copied_where_they_change() -> None:
    coarse = dist.Normal(torch.zeros(2), 1.0).to_event(1)
    fine = in_double(coarse)
    assert coarse.sample().dtype == torch.float32
    assert fine.sample().dtype == torch.float64
    assert in_double(fine) is fine
    mixed = in_double(dist.MultivariateNormal(torch.zeros(2).double(), scale_tril=torch.eye(2).double()))
    assert mixed.log_prob(torch.zeros(2)).dtype == torch.float64
