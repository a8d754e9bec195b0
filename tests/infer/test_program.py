"""A program with parameters of its own, fitted as graphs' priors are."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroParam
from torch import Tensor

from scool_ppl import GraphPrior, InputError, MomentELBO, NaturalGradient, OneHot
from scool_ppl.infer import Program
from scool_ppl.infer.program import LocalModule
from tests.helpers.priors import rng
from tests.helpers.small import close, normal


class Mixture(Program):
    """x_n ~ Normal(centre of c_n, 1), c_n ~ Categorical(pi), pi ~ Dirichlet(1); the centres are learned."""

    def __init__(self, solved: bool) -> None:
        super().__init__()
        self.solved = solved
        self.centres = PyroParam(torch.tensor([-1.0, 1.0]).double())

    def model(self, x: Tensor) -> None:
        pi = pyro.sample("pi", dist.Dirichlet(torch.ones(2).double()))
        with pyro.plate("points", len(x)):
            c = pyro.sample("c", OneHot(pi))
            pyro.factor("x", (c * dist.Normal(self.centres, 1.0).log_prob(x[:, None])).sum(-1))

    def closed_form(self, moments: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
        c = moments["c"]
        return {"centres": (c * x[:, None]).sum(0) / c.sum(0)} if self.solved else {}

    def starts(self, x: Tensor, random: torch.Generator) -> list[dict[str, Tensor]]:
        right = (x > 0).double()
        return [{"c": torch.stack([1 - right, right], 1)}]


POINTS = torch.cat([normal(30) - 2, normal(20, seed=1) + 2])
RPROP = partial(torch.optim.Rprop, lr=0.1)


@pytest.mark.parametrize("solved", [True, False], ids=["closed form", "by gradient"])
def test_it_is_variational_em_written_out(solved: bool) -> None:
    program = Mixture(solved)
    step = NaturalGradient(sweeps=300, tol=1e-13, optimizer=RPROP, optimizer_steps=300)
    found = step.fit(program, POINTS, generator=rng())
    centres, r = torch.tensor([-1.0, 1.0]).double(), torch.full((50, 2), 0.5).double()
    for _ in range(500):
        gamma = 1 + r.sum(0)
        r = (gamma.digamma() - (POINTS[:, None] - centres).square() / 2).softmax(1)
        centres = (r * POINTS[:, None]).sum(0) / r.sum(0)
    close(program.centres, centres, 1e-5)
    close(found.moments["c"], r, 1e-5)
    close(found.moments["pi"], (1 + r.sum(0)) / 52, 1e-5)
    assert float(torch.tensor(found.bounds).diff().min()) > -1e-9


def test_the_bound_is_that_of_its_guide() -> None:
    program = Mixture(True)
    found = NaturalGradient().fit(program, POINTS, generator=rng())

    def guide(x: Tensor) -> None:
        pyro.sample("pi", dist.Dirichlet(found.q["pi_concentration"]))
        with pyro.plate("points", len(x)):
            pyro.sample("c", OneHot(logits=found.q["c_logits"]))

    assert -MomentELBO().loss(program, guide, POINTS) == pytest.approx(found.elbo, abs=1e-9)


def test_any_optimiser_raises_the_bound() -> None:
    """However far its steps go: they are halved."""
    for optimizer in (
        partial(torch.optim.SGD, lr=10.0),
        partial(torch.optim.Adam, lr=3.0),
        NaturalGradient().optimizer,
    ):
        found = NaturalGradient(optimizer=optimizer, optimizer_steps=20).fit(Mixture(False), POINTS, generator=rng())
        assert float(torch.tensor(found.bounds).double().diff().min()) >= -1e-4
        assert found.elbo > found.bounds[0]


@pytest.mark.parametrize("solved", [True, False], ids=["closed form", "by gradient"])
def test_what_is_frozen_stays_and_q_is_its_optimum(solved: bool) -> None:
    program, given = Mixture(solved), torch.tensor([-0.5, 3.0]).double()
    program.centres = given
    program.freeze(["centres_unconstrained"])
    found = NaturalGradient(sweeps=300, tol=1e-13, optimizer=RPROP, optimizer_steps=20).fit(
        program, POINTS, generator=rng()
    )
    assert torch.equal(program.centres, given)
    r = torch.full((50, 2), 0.5).double()
    for _ in range(500):
        r = ((1 + r.sum(0)).digamma() - (POINTS[:, None] - given).square() / 2).softmax(1)
    close(found.moments["c"], r, 1e-9)


def test_it_starts_where_it_says_else_at_random() -> None:
    class Anywhere(Mixture):
        def starts(self, *args: Any, **kwargs: Any) -> list[dict[str, Tensor]]:
            return []

    step = NaturalGradient(sweeps=300, tol=1e-10, restarts=3)
    one, other = (step.fit(kind(True), POINTS, generator=rng()) for kind in (Mixture, Anywhere))
    assert one.elbo == pytest.approx(other.elbo, abs=1e-6)


def test_a_continuous_site_is_refused() -> None:
    class Line(Program):
        def model(self) -> Tensor:
            return pyro.sample("slope", dist.Normal(0.0, 1.0))

    with pytest.raises(InputError, match="'slope' is continuous"):
        NaturalGradient().fit(Line(), generator=rng())


def test_a_program_needs_a_model() -> None:
    with pytest.raises(InputError, match="Program has no `model`"):
        Program()()


def test_a_prior_is_a_program() -> None:
    assert issubclass(GraphPrior, Program)
    assert set(Mixture(True).state()) == {"centres_unconstrained"}


def test_its_parameters_are_its_own() -> None:
    """A LocalModule leaves Pyro's param store and settings as they are."""
    program = Mixture(False)
    assert isinstance(program, LocalModule)
    program(POINTS)
    assert not pyro.get_param_store().keys()
    assert pyro.settings.get("module_local_params") is False
