"""One-hot sites as indices: the same program to `infer_discrete`."""

from __future__ import annotations

from collections.abc import Callable

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, config_enumerate, infer_discrete
from torch import Tensor

from scool_ppl import OneHot
from scool_ppl.infer.indices import AsIndex
from tests.helpers.small import close

X = torch.tensor([-2.0, -1.0, 0.3, 1.9, 2.2]).double()
CENTRES = torch.tensor([-1.0, 0.5, 2.0]).double()
SHARES = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)


def mixture(kind: Callable[[Tensor], dist.TorchDistribution]) -> Callable[[], Tensor]:
    """x_n ~ Normal(centre of c_n, 1)."""

    def program() -> Tensor:
        with pyro.plate("points", len(X)):
            c = pyro.sample("c", kind(SHARES))
            centre = CENTRES[c] if kind is dist.Categorical else (c * CENTRES).sum(-1)
            pyro.sample("x", dist.Normal(centre, 1.0), obs=X)
        return torch.nn.functional.one_hot(c, 3).to(X) if kind is dist.Categorical else c

    return program


def nothing() -> None:
    """Everything is enumerated in the model."""


def posterior() -> Tensor:
    return (SHARES.log() - (X[:, None] - CENTRES).square() / 2).softmax(-1)


AS_INDEX = poutine.reparam(mixture(OneHot), {"c": AsIndex()})


@pytest.mark.parametrize(
    "program",
    [mixture(OneHot), AS_INDEX, mixture(dist.OneHotCategorical), mixture(dist.Categorical)],
    ids=["OneHot", "as index", "Pyro's one-hot", "Categorical"],
)
def test_the_enumerated_bound_is_the_evidence(program: Callable[[], Tensor]) -> None:
    likelihood = dist.Normal(CENTRES, 1.0).log_prob(X[:, None])
    evidence = float((SHARES.log() + likelihood).logsumexp(-1).sum())
    elbo = TraceEnum_ELBO(max_plate_nesting=1)
    assert -elbo.loss(config_enumerate(program), nothing) == pytest.approx(evidence, abs=1e-12)
    site = "c_index" if program is AS_INDEX else "c"
    found = elbo.compute_marginals(config_enumerate(program), nothing)[site]
    values = torch.arange(3)[:, None] if isinstance(found, dist.Categorical) else torch.eye(3).double()[:, None]
    close(found.log_prob(values).exp().T, posterior())


@pytest.mark.parametrize("program", [AS_INDEX, mixture(dist.Categorical)], ids=["as index", "Categorical"])
def test_infer_discrete_draws_from_the_posterior(program: Callable[[], Tensor]) -> None:
    enumerated = config_enumerate(program)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = torch.stack([infer_discrete(enumerated, first_available_dim=-2)() for _ in range(400)])
        best = infer_discrete(enumerated, first_available_dim=-2, temperature=0)()
    p = posterior()
    assert bool(((draws.mean(0) - p).abs() < 5 * (p * (1 - p) / 400).sqrt() + 1e-3).all())
    assert torch.equal(best.argmax(-1), p.argmax(-1))


def test_an_observed_one_hot_is_an_observed_index() -> None:
    data = torch.eye(3).double()[[0, 2, 1, 1, 2]]
    seen = poutine.condition(mixture(OneHot), data={"c": data})
    one = poutine.trace(seen).get_trace().log_prob_sum()
    other = poutine.trace(poutine.reparam(seen, {"c": AsIndex()})).get_trace()
    close(other.log_prob_sum(), one)
    assert torch.equal(other.nodes["c_index"]["value"], data.argmax(-1))
