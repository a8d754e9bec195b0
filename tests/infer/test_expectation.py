"""E_q[log p] against sums over every value and loops over pairs, interpreted and compiled."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor, nn
from torch.nn.functional import one_hot

from scool_ppl import GraphPrior, NaturalGradient, OneHot
from scool_ppl.infer.compiled import Compiled, UnsupportedError
from scool_ppl.infer.estep.base import Posterior
from scool_ppl.infer.expectation import Expectation, Interpreted
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.priors.sbm import SBM
from scool_ppl.infer.program import Program
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import mmsbm, rng, sbm
from tests.helpers.small import close, normal, uniform

KINDS = {"pi": "dirichlet", "z": "one-hot", "Y": "bernoulli"}
MASK = torch.tensor([[False, True, True], [True, False, False], [True, True, False]])
LOG_LIK = random_log_lik(3)
ALPHA = torch.tensor([0.7, 1.6], dtype=torch.float64)
B = torch.tensor([[0.8, 0.3], [0.2, 0.6]], dtype=torch.float64)


def by_hand(moments: dict[str, Tensor], alpha: Tensor = ALPHA, blocks: Tensor = B) -> Tensor:
    """log p of the block model, its equation by loops over clients and pairs."""
    log_pi, z, graph = moments["pi"], moments["z"], moments["Y"]
    total = torch.zeros((), dtype=torch.float64)
    for i in range(3):
        total = total + alpha.sum().lgamma() - alpha.lgamma().sum() + ((alpha - 1 + z[i]) * log_pi[i]).sum()
    for i, j in MASK.nonzero().tolist():
        total = total + graph[i, j] * (z[i] @ blocks.log() @ z[j] + LOG_LIK[i, j])
        total = total + (1 - graph[i, j]) * (z[i] @ (1 - blocks).log() @ z[j])
    return total


def moments_of(seed: int = 0) -> dict[str, Tensor]:
    """Of an arbitrary q; E[log pi] need only be negative."""
    return {
        "pi": -uniform(3, 2, seed=seed) - 0.1,
        "z": normal(3, 2, seed=seed + 1).softmax(-1),
        "Y": uniform(3, 3, seed=seed + 2),
    }


def blocks() -> SBM:
    prior = sbm(3, 2, alpha=1.0)
    prior.B, prior.alpha = B, ALPHA
    return prior


def interpreted(prior: SBM, moments: dict[str, Tensor]) -> Expectation:
    return Interpreted(Joint(prior, LOG_LIK), KINDS, moments, (evidence_of(LOG_LIK, MASK),))


def compiled(prior: SBM, moments: dict[str, Tensor]) -> Expectation:
    return Compiled(Joint(prior, LOG_LIK), prior, KINDS, moments, (evidence_of(LOG_LIK, MASK),))


Made = Callable[..., Expectation]
both = pytest.mark.parametrize("made", [interpreted, compiled])


@both
def test_it_is_the_expectation_over_every_value(made: Made) -> None:
    """The sum over every z and Y of their probability times log p, where the equation itself is of hard values."""
    moments = moments_of()
    expectation = made(blocks(), moments_of())
    total, pairs = 0.0, MASK.nonzero().tolist()
    for groups in itertools.product(range(2), repeat=3):
        z = one_hot(torch.tensor(groups), 2).double()
        weight = float((z * moments["z"]).sum(1).prod())
        for edges in itertools.product((0.0, 1.0), repeat=len(pairs)):
            graph, chance = torch.zeros(3, 3, dtype=torch.float64), weight
            for (i, j), edge in zip(pairs, edges, strict=True):
                graph[i, j] = edge
                chance *= float(moments["Y"][i, j] if edge else 1 - moments["Y"][i, j])
            total += chance * float(by_hand({"pi": moments["pi"], "z": z, "Y": graph}))
    assert expectation.expected() == pytest.approx(total, abs=1e-10)


@both
def test_a_derivative_is_the_slope_in_each_moment(made: Made) -> None:
    """E_q[log p] is linear in each number, so that its slope is a difference, however large the step."""
    moments = moments_of()
    expectation = made(blocks(), moments_of())
    for site, moment in moments.items():
        found = expectation.derivative(site)
        expected = torch.zeros_like(moment)
        for i, j in itertools.product(*map(range, moment.shape)):
            ends = []
            for step in (0.5, -0.5):
                moved = moment.clone()
                moved[i, j] += step
                ends.append(by_hand({**moments, site: moved}))
            expected[i, j] = ends[0] - ends[1]
        close(found, expected)
        rows = torch.tensor([2, 0])
        close(expectation.derivative(site, rows), expected[rows])


@both
def test_what_is_updated_counts_from_there_on(made: Made) -> None:
    moments = moments_of()
    expectation = made(blocks(), moments_of())
    assert expectation.expected() == pytest.approx(float(by_hand(moments)), abs=1e-10)
    for site, moment in moments_of(seed=9).items():
        moments[site] = moment
        expectation.update(site, moment)
        assert torch.equal(expectation.moments[site], moment)
        assert expectation.expected() == pytest.approx(float(by_hand(moments)), abs=1e-10)
        leaves = {name: value.clone().requires_grad_() for name, value in moments.items()}
        slopes = torch.autograd.grad(by_hand(leaves), list(leaves.values()))
        for name, slope in zip(leaves, slopes, strict=True):
            close(expectation.derivative(name), slope)


@both
def test_a_rise_is_a_difference_and_moves_the_moments(made: Made) -> None:
    moments = moments_of()
    expectation = made(blocks(), moments_of())
    for site, other in moments_of(seed=9).items():
        for rows in (torch.tensor([2, 0]), torch.tensor([1, 2, 0])):
            after = {**moments, site: moments[site].index_copy(0, rows, other[rows])}
            expected = float(by_hand(after) - by_hand(moments))
            assert expectation.rise(site, other[rows], rows) == pytest.approx(expected, abs=1e-10)
            moments = after
            assert torch.equal(expectation.moments[site], moments[site])
            assert expectation.expected() == pytest.approx(float(by_hand(moments)), abs=1e-10)


@both
def test_its_parameters_are_read_when_it_is_told(made: Made) -> None:
    prior = blocks()
    moments = moments_of()
    expectation = made(prior, moments_of())
    expectation.expected()
    alpha, other = torch.tensor([1.2, 0.4]).double(), torch.tensor([[0.7, 0.4], [0.5, 0.15]]).double()
    with torch.no_grad():
        prior.B = other
    expectation.refresh(["B"])
    assert expectation.expected() == pytest.approx(float(by_hand(moments, blocks=other)), abs=1e-10)
    with torch.no_grad():
        prior.alpha = alpha
    expectation.refresh(["alpha"])
    assert expectation.expected() == pytest.approx(float(by_hand(moments, alpha, other)), abs=1e-10)
    close(expectation.derivative("pi"), alpha - 1 + moments["z"])


@both
def test_the_loss_falls_as_the_parameters_say(made: Made) -> None:
    """Its gradient in B and alpha, by the chain rule, is that of the equation."""
    prior = blocks()
    expectation = made(prior, moments_of())
    alpha, other = ALPHA.clone().requires_grad_(), B.clone().requires_grad_()
    expected = torch.autograd.grad(-by_hand(moments_of(), alpha, other), [alpha, other])
    loss = expectation.loss()
    close(loss, -by_hand(moments_of()))
    for name, slope in zip(("alpha", "B"), expected, strict=True):
        raw = dict(prior.named_parameters())[f"{name}_unconstrained"]
        constraint = torch.distributions.transform_to(prior._pyro_params[name][0])
        leaf = raw.detach().clone().requires_grad_()
        (chained,) = torch.autograd.grad((constraint(leaf) * slope).sum(), leaf)
        (found,) = torch.autograd.grad(loss, raw, retain_graph=True)
        close(found, chained)
        assert float(found.abs().min()) > 1e-3


@both
def test_moments_that_it_was_given_stay_as_they_are(made: Made) -> None:
    given, before = moments_of(), moments_of()
    expectation = made(blocks(), given)
    expectation.derivative("z")
    expectation.rise("z", uniform(2, 2), torch.tensor([0, 2]))
    expectation.update("pi", -uniform(3, 2))
    for name, moment in given.items():
        assert torch.equal(moment, before[name])
        assert not moment.requires_grad


def test_both_are_called_alike() -> None:
    """Every method of an Expectation, by the same arguments."""
    methods = [name for name, member in vars(Expectation).items() if inspect.isfunction(member) and name[0] != "_"]
    assert len(methods) == 7
    for kind, name in itertools.product((Interpreted, Compiled), methods):
        assert inspect.signature(getattr(kind, name)) == inspect.signature(getattr(Expectation, name))


class Counted(Program):
    """How often it was run."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0
        self.w = nn.Parameter(normal(3))

    def model(self) -> None:
        self.runs += 1
        with pyro.plate("clients", 4):
            z = pyro.sample("z", OneHot(torch.full((3,), 1 / 3, dtype=torch.float64)))
            pyro.factor("f", z @ self.w)
            with poutine.mask(mask=False):
                pyro.sample("silent", dist.Bernoulli(torch.tensor(0.3).double()))


def test_the_program_runs_once_wherever_it_is_asked() -> None:
    program = Counted()
    moments = {"z": normal(4, 3).softmax(-1), "silent": uniform(4)}
    expectation = Interpreted(program, {"z": "one-hot", "silent": "bernoulli"}, moments, ())
    for change in (lambda: expectation.update("z", normal(4, 3).softmax(-1)), lambda: expectation.refresh(["w"])):
        before = program.runs
        for _ in range(2):
            expectation.expected()
            expectation.derivative("z")
            expectation.derivative("silent", torch.tensor([0]))
        assert program.runs == before + 1
        change()
        assert program.runs == before + 1


def test_the_derivative_in_what_does_not_count_is_zero() -> None:
    program = Counted()
    moments = {"z": normal(4, 3).softmax(-1), "silent": uniform(4)}
    expectation = Interpreted(program, {"z": "one-hot", "silent": "bernoulli"}, moments, ())
    assert torch.equal(expectation.derivative("silent"), torch.zeros(4).double())
    close(expectation.derivative("z"), (program.w - math.log(3)).expand(4, 3))


def test_a_program_without_sites_has_a_value_and_a_loss() -> None:
    class Fixed(Program):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor(2.0).double())

        def model(self) -> None:
            pyro.factor("f", -self.w.square())

    program = Fixed()
    expectations: list[Expectation] = [Interpreted(program, {}, {}, ()), Compiled(program, program, {}, {}, ())]
    for expectation in expectations:
        assert expectation.expected() == -4
        (slope,) = torch.autograd.grad(expectation.loss(), program.w)
        assert float(slope) == 4


# NaturalGradient by either.


class Leaning(GraphPrior):
    """logit P(Y_ij) = z_i' S z_j + t, S and t learned, and clients of a kind like each other's company."""

    def __init__(self, num_clients: int) -> None:
        super().__init__(num_clients)
        self.lean = nn.Parameter(normal(2, 2, seed=4))
        self.tilt = nn.Parameter(torch.tensor(-0.3).double())

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            z = pyro.sample("z", OneHot(torch.tensor([0.4, 0.6]).double()))
        pyro.factor("company", -0.1 * (z.sum(0) - 2).square().sum())
        with self.edges:
            graph = pyro.sample("Y", dist.Bernoulli(logits=self.tilt))
            leaning = torch.einsum("...g,gh,...h->...", self.receiver(z), self.lean.tanh(), self.sender(z))
            pyro.factor("leaning", leaning * graph)
            return graph


ROUNDS: dict[str, Callable[[], GraphPrior]] = {
    "sbm": lambda: sbm(6, 3, spectral=False),
    "mmsbm": lambda: mmsbm(5, 2, spectral=False),
    "a prior of one's own": lambda: Leaning(6),
}


def two_rounds(prior: GraphPrior) -> list[Posterior]:
    """A start from nothing, and one from where that ended, with other evidence."""
    step = NaturalGradient(sweeps=4, blocks=2, restarts=1)
    found: list[Posterior] = []
    for seed in range(2):
        log_lik = random_log_lik(prior.num_clients, seed)
        q = found[-1].q if found else {}
        found.append(step(Joint(prior, log_lik), evidence_of(log_lik), q, rng(seed)))
    return found


@pytest.mark.parametrize("name", ROUNDS)
def test_natural_gradient_finds_the_same_by_either(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def uncompiled(*_: object) -> Compiled:
        raise UnsupportedError("nothing is compiled")

    one, other = ROUNDS[name](), ROUNDS[name]()
    found = two_rounds(one)  # a warning would be an error
    monkeypatch.setattr("scool_ppl.infer.estep.problem.Compiled", uncompiled)
    with pytest.warns(UserWarning, match="nothing is compiled"):
        expected = two_rounds(other)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.bounds == pytest.approx(theirs.bounds, rel=1e-10, abs=1e-10)
        close(mine.moments["Y"], theirs.moments["Y"])
    assert found[1].elbo != found[0].elbo
    for parameter, value in one.state().items():
        close(value, other.state()[parameter])
        assert not torch.equal(value, ROUNDS[name]().state()[parameter]), "it was learned"
