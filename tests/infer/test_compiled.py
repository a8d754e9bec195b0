"""Compiled programs against the same programs run by Pyro and autograd, and what is not compiled."""

from __future__ import annotations

import contextlib
import ctypes
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor, nn
from torch.nn import functional

from scool_ppl import GraphPrior, NaturalGradient, OneHot, load_model
from scool_ppl.deploy.stacking import Stacking
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.compiled import Compiled, Recorder, check_derivatives, check_same
from scool_ppl.infer.estep.base import Posterior
from scool_ppl.infer.estep.natural import discrete_guide
from scool_ppl.infer.expectation import Interpreted
from scool_ppl.infer.moments import AnyProgram, expected_log
from scool_ppl.infer.multilinear import MOST_TERMS, Axes, Form, UnsupportedError, product
from scool_ppl.infer.priors import SBM
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.program import Program
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import (
    Distant,
    Several,
    attention,
    mixing,
    mmsbm,
    rng,
    sbm,
    some_masked,
    updates,
    with_self,
    with_updates,
    without_client,
)
from tests.helpers.small import normal, uniform

K = 5


class Case(NamedTuple):
    """What is scored, the program whose parameters are learned, and what both are called with."""

    joint: AnyProgram
    program: Program
    args: tuple[Any, ...]

    def moments(self, seed: int = 0) -> tuple[dict[str, str], dict[str, Tensor]]:
        """The kind of each site, and moments of a random q."""
        guide = discrete_guide(self.joint, *self.args)
        moments = {}
        for place, (name, kind) in enumerate(guide.kinds.items()):
            shape = getattr(guide, guide.parameter_name(name)).shape
            logits = normal(*shape, seed=seed + place)
            guide.load({guide.parameter_name(name): logits.exp() + 0.2 if kind == "dirichlet" else logits})
            factor = guide.distribution(name)
            moments[name] = (expected_log(factor.concentration) if kind == "dirichlet" else factor.mean).detach()
        return guide.kinds, moments

    @torch.no_grad()
    def both(self, seed: int = 0) -> tuple[Compiled, Interpreted]:
        kinds, moments = self.moments(seed)
        compiled = Compiled(self.joint, self.program, kinds, moments, self.args)
        return compiled, Interpreted(self.joint, kinds, moments, self.args)


def random(shape: Sequence[int], seed: int) -> Tensor:
    """Normal numbers, of a scalar too."""
    return normal(1, *shape, seed=seed)[0]


# How they are compared.


def alike(found: Tensor | float, expected: Tensor | float, what: str) -> None:
    """Equal up to 1e-10 of the largest number, or of 1."""
    found, expected = (torch.as_tensor(number, dtype=torch.float64) for number in (found, expected))
    assert found.shape == expected.shape, what
    most = float(expected.abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 * (1 + most), msg=lambda text: f"{what}: {text}")


def slopes(loss: Tensor, program: Program) -> dict[str, Tensor]:
    """The gradient of a loss in every parameter that is learned."""
    learned = {name: each for name, each in program.named_parameters() if each.requires_grad}
    if not loss.requires_grad:
        return {name: torch.zeros_like(each) for name, each in learned.items()}
    gradients = torch.autograd.grad(loss, list(learned.values()), allow_unused=True)
    return {
        name: torch.zeros_like(each) if gradient is None else gradient
        for (name, each), gradient in zip(learned.items(), gradients, strict=True)
    }


def some_rows(size: int) -> list[Tensor]:
    """All in another order, and two."""
    return [torch.arange(size - 1, -1, -1), torch.tensor([size - 1, 0])] if size > 1 else [torch.tensor([0])]


def agree(compiled: Compiled, interpreted: Interpreted, program: Program) -> None:
    """Value, derivatives, loss and its gradient here are the same."""
    assert compiled.moments.keys() == interpreted.moments.keys()
    with torch.no_grad():
        alike(compiled.expected(), interpreted.expected(), "E_q[log p]")
        for site, moment in interpreted.moments.items():
            whole = interpreted.derivative(site)
            for rows in [*some_rows(len(moment)), torch.tensor([len(moment) // 2])]:
                alike(compiled.derivative(site, rows), whole[rows], f"derivative of {site} by rows")
            alike(compiled.derivative(site), whole, f"derivative of {site}")
    loss = compiled.loss()
    alike(loss.detach(), -interpreted.expected(), "loss")
    expected = slopes(interpreted.loss(), program)
    for name, gradient in slopes(loss, program).items():
        alike(gradient, expected[name], f"gradient in {name}")


@torch.no_grad()
def rise_alike(compiled: Compiled, interpreted: Interpreted, other: Mapping[str, Tensor]) -> None:
    """Rows of each site in turn become those of other moments: the rise is the same, and so are the moments."""
    for site, moment in other.items():
        for rows in some_rows(len(moment)):
            expected = interpreted.rise(site, moment[rows], rows)
            alike(compiled.rise(site, moment[rows], rows), expected, f"rise of {site}")
            assert torch.equal(compiled.moments[site], interpreted.moments[site])
            for each in other:
                alike(compiled.derivative(each), interpreted.derivative(each), f"derivative of {each} after {site}")
            interpreted.update(site, compiled.moments[site] * 0.75 + moment.flip(0) * 0.25)  # so that rows have to move
            compiled.update(site, interpreted.moments[site])


# What is compared.


class Tilted(GraphPrior):
    """logit P(Y_ij) = t_ij, each learned: one of Pyro's own distributions."""

    def __init__(self, num_clients: int) -> None:
        super().__init__(num_clients)
        self.tilt = nn.Parameter(normal(num_clients, num_clients, seed=8))

    def model(self, evidence: Evidence) -> Tensor:
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=evidence.peers.take(self.tilt)))


class Mutual(GraphPrior):
    """Edges that come in pairs, P(Y_ij) by its probability, and a site with one row for all clients."""

    def __init__(self, num_clients: int) -> None:
        super().__init__(num_clients)
        self.love = nn.Parameter(torch.tensor(0.7).double())
        self.base = nn.Parameter(normal(num_clients, num_clients, seed=8))

    def model(self, evidence: Evidence) -> Tensor:
        with self.edges:
            graph = pyro.sample("Y", dist.Bernoulli(self.base.sigmoid()))
            pyro.factor("mutual", self.love * graph * graph.mT)
        mood = pyro.sample("mood", OneHot(torch.full((3,), 1 / 3, dtype=torch.float64)))
        pyro.factor("mood of all", (normal(3, seed=1) * mood).sum() * graph.mean() + mood[None, :].square().sum())
        return graph


class Cliques(Mutual):
    """Edges that come in threes: the log joint is cubic in Y."""

    def model(self, evidence: Evidence) -> Tensor:
        graph = super().model(evidence)
        pyro.factor("threes", self.love * ((graph @ graph) * graph).sum())
        return graph


def evidence_that(kind: str, includes_self: bool) -> tuple[Evidence, Tensor]:
    """What a round shows of five clients, or of one, and a table of log-likelihoods."""
    size = 1 if kind == "one client" else K
    peers = Peers.everybody(size, includes_self)
    if kind == "some masked":
        peers = Peers(with_self(size) if includes_self else some_masked(size))
    if kind == "a table":
        columns = torch.tensor([0, 1, 3] if includes_self else [1, 2, 4])
        mask = torch.ones(size, 3, dtype=torch.bool)
        mask[0, 2] = mask[3, 0] = False
        peers = Peers(mask, (torch.arange(size)[:, None] + columns) % size)
    log_lik = random_log_lik(size)[:, : peers.mask.shape[1]].contiguous()
    evidence = with_updates(Evidence.given(loss=-log_lik, peers=peers), updates(size))
    return (without_client(evidence, 2) if kind == "an absent client" else evidence), log_lik


def scattered_parameters(prior: GraphPrior) -> GraphPrior:
    """The same prior with other parameters, no two alike; what is fixed is left."""
    with torch.no_grad():
        for place, parameter in enumerate(prior.parameters()):
            parameter.add_(0.5 * random(parameter.shape, seed=60 + place))
    return prior


def loaded(name: str, size: int, **options: Any) -> GraphPrior:
    model: Any = load_model(name, size, **options)
    prior: GraphPrior = model.prior.double()
    return prior


PRIORS: dict[str, Callable[[int], GraphPrior]] = {
    "sbm": lambda size: sbm(size, 3, alpha=0.7),
    "tempered sbm, fixed alpha": lambda size: sbm(size, 2, alpha=0.7, temper=2.5, learn_alpha=False),
    "mmsbm": lambda size: mmsbm(size, 2, alpha=0.8),
    "tempered mmsbm, fixed alpha": lambda size: mmsbm(size, 3, temper=1.5, learn_alpha=False),
    "distant": Distant,
    "several": Several,
    "mixture": lambda size: mixing(size, learn=True, log_pi=normal(size, size, seed=2).log_softmax(1)),
    "attention": attention,
    "fixed attention": lambda size: attention(size, learn=False),
    "soft attention": lambda size: attention(size, soft=True),
    "covariate sbm": lambda size: loaded("covariate_sbm", size, blocks=3),
    "ring": lambda size: loaded("ring", size),
    "tilted": Tilted,
    "cliques": Cliques,
}
KINDS = ("everybody", "some masked", "a table", "an absent client", "one client")
SQUARE = ("everybody", "some masked", "an absent client")
GRAPHS = [(prior, kind) for prior in PRIORS for kind in (SQUARE if prior == "cliques" else KINDS)]


def graph_case(name: str, kind: str) -> Case:
    size = 1 if kind == "one client" else K
    prior = PRIORS[name](size)
    evidence, log_lik = evidence_that(kind, prior.includes_self)
    return Case(Joint(scattered_parameters(prior), log_lik), prior, (evidence,))


def stacking_case() -> Case:
    """Three clients of three candidates; the last has one image only."""
    log_p = functional.logsigmoid(normal(3, 3, 4))
    mask = torch.arange(4) < torch.tensor([[4], [3], [1]])
    program = Stacking(3, 20.0)
    program.logits.data = normal(3, seed=4)
    return Case(program, program, (log_p, mask))


def case_of(name: str, kind: str = "everybody") -> Case:
    return stacking_case() if name == "stacking" else graph_case(name, kind)


@pytest.fixture(params=[0, 2**30], ids=["some rows only", "all rows at once"])
def _rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From how many numbers on a derivative is computed for some rows only."""
    monkeypatch.setattr("scool_ppl.infer.compiled._SMALL", request.param)


@pytest.mark.usefixtures("_rows")
@pytest.mark.parametrize(("name", "kind"), [*GRAPHS, ("stacking", "everybody")])
def test_a_compiled_program_is_the_program(name: str, kind: str) -> None:
    case = case_of(name, kind)
    compiled, interpreted = case.both()
    agree(compiled, interpreted, case.program)
    rise_alike(compiled, interpreted, case.moments(seed=30)[1])
    agree(compiled, interpreted, case.program)


@pytest.mark.usefixtures("_rows")
@pytest.mark.parametrize("name", [*PRIORS, "stacking"])
def test_what_has_changed_is_computed_anew(name: str) -> None:
    """One site after the other, and one parameter after the other, each against a new start from there."""
    case = case_of(name)
    compiled, _ = case.both()
    kinds, other = case.moments(seed=30)
    rows = {site: torch.arange(min(2, len(moment))) for site, moment in other.items()}

    def agree_afresh() -> None:
        fresh = Interpreted(case.joint, kinds, compiled.moments, case.args)
        with torch.no_grad():
            for site in kinds:
                found, expected = (each.derivative(site, rows[site]) for each in (compiled, fresh))
                alike(found, expected, f"derivative of {site} by the same rows")
        agree(compiled, fresh, case.program)

    agree_afresh()
    for site, moment in other.items():
        compiled.update(site, moment)
        agree_afresh()
    for place, (parameter, value) in enumerate(case.program.named_parameters()):
        with torch.no_grad():
            value.add_(0.3 * random(value.shape, seed=place))
        compiled.refresh([parameter])
        agree_afresh()
    for buffer, old in list(case.program.named_buffers()):
        setattr(case.program, buffer, old * 1.25)
        compiled.refresh([buffer])
        agree_afresh()


def test_parameters_with_a_constraint_are_known_by_the_name_that_they_are_set_by() -> None:
    """As `closed_form` names them."""
    case = case_of("sbm")
    compiled, interpreted = case.both()
    prior: Any = case.program
    with torch.no_grad():
        prior.B = 0.2 + 0.6 * uniform(3, 3)
        prior.alpha = 0.5 + uniform(3)
    before = compiled.expected()
    compiled.refresh(["B", "alpha"])
    interpreted.refresh(["B", "alpha"])
    assert abs(compiled.expected() - before) > 0.1
    agree(compiled, interpreted, case.program)


def test_what_is_asked_for_again_is_not_computed_again() -> None:
    compiled, _ = case_of("sbm").both()
    rows = torch.tensor([0, 3])
    found = compiled.derivative("z")
    assert compiled.derivative("z") is found
    compiled.update("pi", compiled.moments["pi"] - 0.1)
    assert compiled.derivative("z") is not found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scool_ppl.infer.compiled._SMALL", 0)
        compiled, _ = case_of("sbm").both()
        part = compiled.derivative("z", rows)
        assert compiled.derivative("z", rows) is part
        assert compiled.derivative("z", rows.clone()) is not part
        part = compiled.derivative("z", rows)
        compiled.update("pi", compiled.moments["pi"] - 1)
        alike(compiled.derivative("z", rows), part - 1, "another E[log pi]")


# One function of torch after the other.


class Trial(Program):
    """Sites of every kind, parameters, and a factor that a function makes of them."""

    def __init__(self, f: Callable[..., Tensor]) -> None:
        super().__init__()
        self.f = f
        self.w = nn.Parameter(normal(3, seed=50))
        self.b = nn.Parameter(normal(4, 4, seed=51))

    def model(self) -> None:
        with pyro.plate("clients", 4):
            z = pyro.sample("z", OneHot(torch.full((4, 3), 1 / 3, dtype=torch.float64)))
            p = pyro.sample("p", dist.Dirichlet(torch.full((4, 3), 1.5).double()))
            with pyro.plate("others", 4):
                y = pyro.sample("y", dist.Bernoulli(torch.full((4, 4), 0.4).double()))
        found = self.f(y, z, p, self.w, self.b)
        pyro.factor("f", (random(found.shape, seed=52) * found).sum())


class Drawn(Program):
    """One matrix of coins, and a factor that a function makes of it and of a parameter."""

    def __init__(self, f: Callable[..., Any], start: Tensor | None = None) -> None:
        super().__init__()
        self.f = f
        self.w = nn.Parameter(normal(3, seed=50) if start is None else start)

    def model(self) -> None:
        z = pyro.sample("z", OneHot(torch.full((4, 3), 1 / 3, dtype=torch.float64)).to_event(1))
        pyro.factor("f", torch.as_tensor(self.f(z, self.w)).sum())


MASK = torch.tensor([[True, False, True], [False, False, True], [True, True, True], [True, False, False]])
TABLE = torch.tensor([[1, 3], [0, 2], [3, 3], [0, 0]])
C = normal(4, 3, seed=53)

RULES: dict[str, Callable[..., Tensor]] = {
    "add": lambda y, z, p, w, b: z + w + C,
    "add: a number": lambda y, z, p, w, b: z + 2,
    "add: more than once": lambda y, z, p, w, b: torch.add(z, C, alpha=-2) + z,
    "add: broadcast": lambda y, z, p, w, b: z[:, None, :] + z[None, :, :] + w,
    "radd": lambda y, z, p, w, b: 2 + z,
    "sub": lambda y, z, p, w, b: (z - w) - C,
    "sub: more than once": lambda y, z, p, w, b: torch.sub(z, w, alpha=3),
    "rsub": lambda y, z, p, w, b: 1 - z,
    "rsub: a function": lambda y, z, p, w, b: torch.rsub(z, w),
    "neg": lambda y, z, p, w, b: -z * w,
    "mul": lambda y, z, p, w, b: z * C * w * z,
    "mul: broadcast": lambda y, z, p, w, b: z[:, None] * z[None] * y[..., None],
    "rmul": lambda y, z, p, w, b: 2.5 * z,
    "multiply": lambda y, z, p, w, b: torch.multiply(z, w),
    "div": lambda y, z, p, w, b: z / 4,
    "div: a tensor": lambda y, z, p, w, b: z / (C + 10),
    "div: a parameter": lambda y, z, p, w, b: z / w,
    "truediv": lambda y, z, p, w, b: y / (b * b + 1),
    "true_divide": lambda y, z, p, w, b: torch.true_divide(z, w),
    "square": lambda y, z, p, w, b: z.square() * w,
    "pow": lambda y, z, p, w, b: z**2 * w,
    "pow: a function": lambda y, z, p, w, b: torch.pow(z, 2.0),
    "sum": lambda y, z, p, w, b: z.sum() * w.sum(),
    "sum: one dimension": lambda y, z, p, w, b: y.sum(-1),
    "sum: two dimensions": lambda y, z, p, w, b: (z[:, None] * z[None] * w).sum((0, -1)),
    "sum: kept": lambda y, z, p, w, b: y.sum(0, keepdim=True) * y.sum(1, keepdim=True),
    "sum: both kept": lambda y, z, p, w, b: y * y.sum((0, 1), keepdim=True),
    "sum: numpy's name": lambda y, z, p, w, b: torch.sum(y, axis=1),  # type: ignore[call-overload]
    "sum: over what is repeated": lambda y, z, p, w, b: z.unsqueeze(1).expand(4, 5, 3).sum(1),
    "mean": lambda y, z, p, w, b: y.mean() * w,
    "mean: one dimension": lambda y, z, p, w, b: y.mean(0),
    "mean: kept": lambda y, z, p, w, b: y.mean((0, 1), keepdim=True) * y.mean(1, keepdim=True),
    "einsum": lambda y, z, p, w, b: torch.einsum("ij, ig, jh -> gh", y, z, z),
    "einsum: ellipsis": lambda y, z, p, w, b: torch.einsum("...g,gh,...h->...", z[:, None], w.outer(w), z[None]),
    "einsum: a list": lambda y, z, p, w, b: torch.einsum("ig,g->i", [z, w]),
    "einsum: ellipses of two lengths": lambda y, z, p, w, b: torch.einsum("...g,...g->g...", z[:, None] * z[None], z),
    "einsum: ellipsis summed": lambda y, z, p, w, b: torch.einsum("...g->g", z[:, None] * z),
    "matmul": lambda y, z, p, w, b: z.mT @ y @ z,
    "matmul: 1-d and 1-d": lambda y, z, p, w, b: z.sum(0) @ w,
    "matmul: 2-d and 1-d": lambda y, z, p, w, b: z @ w,
    "matmul: 1-d and 2-d": lambda y, z, p, w, b: w @ z.mT,
    "matmul: 3-d and 3-d": lambda y, z, p, w, b: (z[:, None, :] * w) @ z[:, :, None],
    "matmul: 3-d and 2-d": lambda y, z, p, w, b: (z[:, None, :] * z) @ C.mT,
    "matmul: 2-d and 3-d": lambda y, z, p, w, b: C @ (z[:, :, None] * w),
    "matmul: 1-d and 3-d": lambda y, z, p, w, b: w @ (z[:, :, None] * w),
    "matmul: 3-d and 1-d": lambda y, z, p, w, b: (z[:, :, None] * w) @ w,
    "matmul: 4-d and 3-d": lambda y, z, p, w, b: (z[:, None, None, :] * y[..., None, None]) @ (z[:, :, None] * w),
    "rmatmul": lambda y, z, p, w, b: b.__rmatmul__(y),
    "mm": lambda y, z, p, w, b: torch.mm(y, z),
    "bmm": lambda y, z, p, w, b: torch.bmm(z[:, None, :], z[:, :, None]),
    "mv": lambda y, z, p, w, b: torch.mv(z, w),
    "dot": lambda y, z, p, w, b: torch.dot(z.sum(0), w),
    "unsqueeze": lambda y, z, p, w, b: z.unsqueeze(1) * z.unsqueeze(0) * y.unsqueeze(-1),
    "squeeze": lambda y, z, p, w, b: z[:, None, :, None].squeeze() * C,
    "squeeze: one dimension": lambda y, z, p, w, b: z[:, None].squeeze(1) * z[None].squeeze(0) * z.squeeze(1),
    "squeeze: two dimensions": lambda y, z, p, w, b: z[None, None].squeeze((0, 1)) * C,
    "permute": lambda y, z, p, w, b: (z[:, None] * y[..., None]).permute(2, 0, 1),
    "permute: a list": lambda y, z, p, w, b: (z[:, None] * y[..., None]).permute([1, -1, 0]),
    "transpose": lambda y, z, p, w, b: (z[:, None] * y[..., None]).transpose(0, 2),
    "swapaxes": lambda y, z, p, w, b: y.swapaxes(0, 1) * b,
    "swapdims": lambda y, z, p, w, b: y.swapdims(-1, 0) * b,
    "t": lambda y, z, p, w, b: y.t() * b,
    "T": lambda y, z, p, w, b: y.T * b,
    "mT": lambda y, z, p, w, b: (z[:, None] * y[..., None]).mT,
    "expand": lambda y, z, p, w, b: z.expand(2, 4, 3) * w + y.sum(1, keepdim=True).expand(-1, 3),
    "expand: a size": lambda y, z, p, w, b: z.sum().expand(torch.Size((2, 3))) * w,
    "expand_as": lambda y, z, p, w, b: z.sum(1, keepdim=True).expand_as(C),
    "broadcast_to": lambda y, z, p, w, b: torch.broadcast_to(z.sum(0), (4, 3)) * C,
    "reshape": lambda y, z, p, w, b: z.reshape(4, 1, 3) * z.reshape(1, 4, 3),
    "reshape: a size, and one left open": lambda y, z, p, w, b: z[:, None].reshape((-1, 3)) * w,
    "view": lambda y, z, p, w, b: z.view(1, 4, 3, 1) * y.view(4, 1, 1, 4),
    "to": lambda y, z, p, w, b: z.to(torch.float64) * w.to(z),
    "double": lambda y, z, p, w, b: z.double() * w,
    "type": lambda y, z, p, w, b: z.type(torch.float64) * w,
    "type_as": lambda y, z, p, w, b: z.type_as(C) * w,
    "contiguous": lambda y, z, p, w, b: y.mT.contiguous() * b,
    "clone": lambda y, z, p, w, b: z.clone() * w,
    "as_tensor": lambda y, z, p, w, b: torch.as_tensor(z) * w,
    "getitem": lambda y, z, p, w, b: z[:, None] * z[None] * z[None, :, :],
    "getitem: ellipsis": lambda y, z, p, w, b: z[..., None] * z[:, None, ...] * w,
    "getitem: all": lambda y, z, p, w, b: z[:] * z[...] * w,
    "getitem: a table of rows": lambda y, z, p, w, b: z[:, None] * z[TABLE] * w,
    "getitem: rows": lambda y, z, p, w, b: z[TABLE[:, 0]] * y[TABLE[:, 1]][..., None].sum(1),
    "getitem: a table of one column": lambda y, z, p, w, b: z[TABLE[:, :1]] * z[:, None],
    "getitem: a row": lambda y, z, p, w, b: z[torch.tensor(2)] * w * z,
    "getitem: rows of what was multiplied": lambda y, z, p, w, b: (z @ C.mT)[TABLE] * (z * w)[TABLE].sum(-1)[..., None],
    "getitem: rows of a logarithm": lambda y, z, p, w, b: p[TABLE].log() * z[:, None],
    "getitem: rows of a parameter": lambda y, z, p, w, b: b[TABLE] * y[:, None],
    "where": lambda y, z, p, w, b: torch.where(MASK, z * w, C),
    "where: the other": lambda y, z, p, w, b: torch.where(MASK, 0.0, z),
    "where: both": lambda y, z, p, w, b: torch.where(MASK, z * w, z.square()),
    "where: numbers": lambda y, z, p, w, b: torch.where(MASK, z, -3.0),
    "where: everywhere": lambda y, z, p, w, b: torch.where(MASK | ~MASK, z.sum(0), 1.0) * w,
    "where: nowhere": lambda y, z, p, w, b: torch.where(MASK & ~MASK, z, w),
    "where: a parameter": lambda y, z, p, w, b: torch.where(MASK, w, z),
    "masked_fill": lambda y, z, p, w, b: z.masked_fill(MASK, 0.5) * w,
    "log": lambda y, z, p, w, b: p.log() * z,
    "log: of what was shaped": lambda y, z, p, w, b: p.unsqueeze(1).expand(4, 4, 3).mT.log() * y[:, None],
    "log: twice": lambda y, z, p, w, b: p.log() * p.T[None].log().squeeze().mT * w,
    "xlogy": lambda y, z, p, w, b: torch.xlogy(z, p[None]),
    "xlogy: a parameter and a number": lambda y, z, p, w, b: torch.xlogy(w, p) + torch.xlogy(2, p),
    "xlogy: probabilities": lambda y, z, p, w, b: torch.xlogy(z, C.softmax(-1)),
    "xlogy: learned probabilities": lambda y, z, p, w, b: torch.xlogy(z, w.softmax(-1)),
    "binary_cross_entropy_with_logits": lambda y, z, p, w, b: functional.binary_cross_entropy_with_logits(
        b, y, reduction="none"
    ),
    "binary_cross_entropy_with_logits: given logits": lambda y, z, p, w, b: functional.binary_cross_entropy_with_logits(
        C, z, reduction="none"
    ),
}


@pytest.mark.usefixtures("_rows")
@pytest.mark.parametrize("name", RULES)
def test_what_torch_does_with_moments_is_written_down(name: str) -> None:
    program = Trial(RULES[name])
    case = Case(program, program, ())
    compiled, interpreted = case.both()
    agree(compiled, interpreted, program)
    other = case.moments(seed=30)[1]
    rise_alike(compiled, interpreted, other)
    with torch.no_grad():
        program.w.add_(uniform(3))
        program.b.mul_(uniform(4, 4))
    compiled.refresh(["w", "b"])
    interpreted.refresh(["w", "b"])
    agree(compiled, interpreted, program)


def rules() -> Iterator[str]:
    """What Recorder has a rule for: its methods that torch has a function of the same name for, less the underscore."""
    for method in vars(Recorder):
        name = method.removeprefix("_")
        tensors = hasattr(torch.Tensor, name) or hasattr(torch.Tensor, f"__{name}__")
        known = tensors or hasattr(torch, name) or hasattr(functional, name)
        if known and method.startswith("_") and not name.startswith("_"):
            yield name


def test_every_rule_is_tried() -> None:
    assert len(set(rules())) > 40
    assert set(rules()) == {name.partition(":")[0] for name in RULES}


PARAMETERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "functions": lambda w, b: w.softmax(-1) + w.exp().cumsum(0).log().flip(0),
    "linear algebra": lambda w, b: torch.linalg.inv(b @ b.mT + 4 * torch.eye(4).double())[:3, :3] @ w,
    "one of several": lambda w, b: b.unbind(1)[2][:3] * b.split(3)[1].sum(),
    "one of several by name": lambda w, b: b.max(1).values[:3] + b.topk(2).values[1, 1],
    "each of them": lambda w, b: torch.stack([row.square().sum() for row in b])[1:],
    "unpacked": lambda w, b: (lambda first, second, third: torch.stack([first * second, third, second]))(*w),
    "parts": lambda w, b: b[1, 1:] * b[:, 0][TABLE[0, 0]] * w[[2, 0, 1]],
    "a choice that is no branch": lambda w, b: torch.where(w > 0, w, b[0, :3]) + w.clamp(min=0),
    "broadcast together": lambda w, b: torch.broadcast_tensors(w, b[:3, :1])[1].sum(0) * w,
    "a network": lambda w, b: functional.layer_norm(functional.linear(w, b[:, :3]).relu(), (4,))[:3],
    "another kind of number": lambda w, b: w.float().double() * b[0, 0].to(torch.float64),
    "without a gradient": lambda w, b: w.detach() * w + b.data[0, :3],
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_what_is_done_with_parameters_is_done_again(name: str) -> None:
    program = Trial(lambda y, z, p, w, b: z * z.sum(0) * PARAMETERS[name](w, b))
    compiled, interpreted = Case(program, program, ()).both()
    for changed in ("w", "b", "w"):
        agree(compiled, interpreted, program)
        with torch.no_grad():
            parameter = program.get_parameter(changed)
            parameter.copy_(random(parameter.shape, seed=int(100 * parameter.abs().sum())))
        compiled.refresh([changed])
        interpreted.refresh([changed])
    agree(compiled, interpreted, program)


class Buffered(Program):
    """A factor of a matrix of coins, and of a buffer of any kind of number."""

    def __init__(self, buffer: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", buffer)

    def model(self) -> None:
        with pyro.plate("clients", 4):
            z = pyro.sample("z", OneHot(torch.full((3,), 1 / 3, dtype=torch.float64)))
        pyro.factor("f", (z * z.sum(0) * self.weight).sum())


@pytest.mark.usefixtures("_rows")
@pytest.mark.parametrize("buffer", [torch.arange(12).view(4, 3), MASK, MASK.float()], ids=["long", "bool", "float32"])
def test_a_buffer_is_of_any_kind(buffer: Tensor) -> None:
    program = Buffered(buffer)
    case = Case(program, program, ())
    compiled, interpreted = case.both()
    agree(compiled, interpreted, program)
    rise_alike(compiled, interpreted, case.moments(seed=30)[1])
    program.weight = buffer.flip(0)
    compiled.refresh(["weight"])
    interpreted.refresh(["weight"])
    agree(compiled, interpreted, program)


def test_a_logit_of_any_size_is_written_down() -> None:
    """Up to what softplus itself leaves out of a large number, 2e-9."""
    start = torch.tensor([-800.0, 19.9, 800.0]).double()
    program = Drawn(
        lambda z, w: functional.binary_cross_entropy_with_logits(w.expand(4, 3), z, reduction="none"), start
    )
    compiled, interpreted = Case(program, program, ()).both()
    assert compiled.expected() == pytest.approx(interpreted.expected(), abs=4 * 2.1e-9)
    alike(compiled.derivative("z"), interpreted.derivative("z"), "derivative")


# What is not linear in the moments, or leaves torch.


def written(out: Tensor, z: Tensor) -> Tensor:
    out[:] = z
    return out


def added_to(out: Tensor, z: Tensor) -> Tensor:
    out += z
    return out


REFUSED: dict[str, tuple[Callable[[Tensor, Tensor], Any], str]] = {
    "clamp": (lambda z, w: z.clamp(min=0.1), "'clamp' of a moment"),
    "exp": (lambda z, w: z.exp(), "'exp' of a moment"),
    "a function by another name": (lambda z, w: torch.logsumexp(z, 1), "'logsumexp' of a moment"),
    "item": (lambda z, w: z * z.sum().item(), "'item' of what is inferred or learned"),
    "bool": (lambda z, w: z if bool(z.sum()) else 0, "'__bool__' of what is inferred"),
    "comparison": (lambda z, w: z if z.sum() > 1 else 0, "'gt' of a moment"),
    "numpy": (lambda z, w: torch.as_tensor(z.numpy()), "'numpy' of what is inferred"),
    "setitem": (lambda z, w: written(C.clone(), z), "'__setitem__', which writes into a tensor"),
    "iadd": (lambda z, w: added_to(C.clone(), z), "'add_', which writes into a tensor"),
    "in place": (lambda z, w: C.clone().mul_(z), "'mul_', which writes into a tensor"),
    "in place of a moment": (lambda z, w: z.neg_(), "'neg_', which writes into a tensor"),
    "in place of a parameter's": (lambda z, w: added_to(C.clone(), w) * z, "'add_', which writes into a tensor"),
    "out": (lambda z, w: torch.add(z, w, out=C.clone()), "'add', which writes into a tensor"),
    "detach": (lambda z, w: z.detach() * z, "'detach' of a moment"),
    "data": (lambda z, w: z.data * z, "'data' of a moment"),
    "row": (lambda z, w: z[0], "a part of a moment"),
    "slice": (lambda z, w: z[1:], "a part of a moment"),
    "masked rows": (lambda z, w: z[torch.tensor([True, False, True, True])], "a part of a moment"),
    "columns by an index": (lambda z, w: z[:, torch.tensor([0, 2])], "a part of a moment"),
    "rows of columns": (lambda z, w: z.mT[torch.tensor([0, 2])], "rows of what is no tensor's first axis"),
    "another shape": (lambda z, w: z.reshape(2, 6), r"shape \(4, 3\) as one of shape \(2, 6\)"),
    "cube": (lambda z, w: z**3, "a moment to the power of 3"),
    "division": (lambda z, w: w / (1 + z), "division by a moment"),
    "inverse": (lambda z, w: 1 / z, "of a moment"),
    "logarithm": (lambda z, w: z.log(), "the logarithm of a moment"),
    "entropy": (lambda z, w: torch.xlogy(z, z), "the logarithm of a moment"),
    "choice by a moment": (lambda z, w: torch.where(z > 0.5, z, w), "'gt' of a moment"),
    "choice by a parameter": (lambda z, w: torch.where(w > 0, z, 1.0), "where of what is to be inferred"),
    "logits of moments": (
        lambda z, w: dist.Bernoulli(logits=z, validate_args=False).log_prob(C),
        "not linear in the moments",
    ),
    "mean cross-entropy": (lambda z, w: functional.binary_cross_entropy_with_logits(C, z), "not linear in the moments"),
    "einsum of unknown output": (lambda z, w: torch.einsum("ij", z), "einsum without an output"),
    "too many terms": (lambda z, w: (1 + z + w).square().square().square(), f"more than {MOST_TERMS} terms"),
    "float of a parameter": (lambda z, w: z * float(w[0]), "'__float__' of what is inferred or learned"),
    "choice of a branch": (lambda z, w: z if w[0] > 0 else 0 * z, "'__bool__' of what is inferred or learned"),
    "list of parameters": (lambda z, w: z * w.tolist()[0], "'tolist' of what is inferred or learned"),
    "numpy of a parameter": (lambda z, w: z * torch.as_tensor(w.detach().numpy()), "'numpy' of what is inferred"),
    "array of a parameter": (lambda z, w: z * float(np.asarray(w.detach()).sum()), "'__array__' of what is inferred"),
    "shape by a parameter": (lambda z, w: z.sum() * len(w.nonzero()), "'nonzero' of what is inferred or learned"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_written_down_is_named(name: str) -> None:
    f, message = REFUSED[name]
    program = Drawn(f)
    with pytest.raises(UnsupportedError, match=message):
        Case(program, program, ()).both()


def test_a_dirichlets_sample_itself_is_refused() -> None:
    program = Trial(lambda y, z, p, w, b: p * z)
    with pytest.raises(UnsupportedError, match="a Dirichlet's sample itself"):
        Case(program, program, ()).both()


def test_what_takes_a_shape_only_is_no_use_of_a_moment() -> None:
    program = Drawn(lambda z, w: torch.zeros_like(z) + z.new_ones(4, 3) * z.shape[0] + z * torch.ones_like(w))
    agree(*Case(program, program, ()).both(), program)


def test_what_was_written_down_must_give_what_the_program_gives() -> None:
    check_same(1e6 + 1e-3, 1e6, 1e-8)
    for found, expected in ((1.0001, 1.0), (float("nan"), 1.0), (1.0, float("nan")), (float("inf"), 1.0)):
        with pytest.raises(UnsupportedError, match="what Python does with its numbers"):
            check_same(found, expected, 1e-8)


def test_a_constant_that_is_written_into_between_its_uses_is_noticed() -> None:
    def f(z: Tensor, w: Tensor) -> Tensor:
        constant = C.clone()
        first = constant * z
        constant += 1
        return first + constant * z.square()

    program = Drawn(f)
    with pytest.raises(UnsupportedError, match="what Python does with its numbers"):
        Case(program, program, ()).both()


# NaturalGradient where a program cannot be compiled.


class Refused(GraphPrior):
    """Blocks, and a factor of their members that no sum of products is."""

    def __init__(self, num_clients: int, f: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(num_clients)
        self.f = f
        self.b = nn.Parameter(torch.tensor([0.3, -0.2]).double())

    def model(self, evidence: Evidence) -> Tensor:
        with self.clients:
            z = pyro.sample("z", OneHot(torch.full((2,), 0.5).double()))
        pyro.factor("f", self.f(z, self.b).sum())
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=self.b.sum() * torch.ones(()).double()))


def hidden(z: Tensor, b: Tensor) -> Tensor:
    """A number read from a moment's memory, which torch knows nothing of."""
    first = ctypes.c_double.from_address(z.data_ptr()).value
    return first * normal(4, 2, seed=3) * z * b


def aliased(z: Tensor, b: Tensor) -> Tensor:
    """A number read from a parameter's memory."""
    first = ctypes.c_double.from_address(b.data_ptr()).value
    return first * normal(4, 2, seed=3) * z * b.square()


FALLING: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {
    "not linear": (lambda z, b: (z.mT @ z).clamp(min=0.1) * b, "'clamp' of a moment"),
    "a branch": (
        lambda z, b: z.square() * (b if float(b.detach()[0]) > 0 else -b),
        "'__float__' of what is inferred or learned",
    ),
    "a moment's memory": (hidden, "what Python does with its numbers"),
    "a parameter's memory": (aliased, "what Python does with its numbers"),
}
STEP = NaturalGradient(sweeps=2, restarts=1, blocks=2)


def fitted(prior: GraphPrior, message: str) -> Posterior:
    """What NaturalGradient finds, and the one warning that it gives."""
    log_lik = random_log_lik(prior.num_clients)
    with pytest.warns(UserWarning, match="runs in Pyro at every evaluation") as caught:
        found = STEP(Joint(prior, log_lik), evidence_of(log_lik), {}, rng(1))
    assert len(caught) == 1
    assert f"{type(prior).__name__} runs in Pyro at every evaluation, which is slow: " in str(caught[0].message)
    assert message in str(caught[0].message)
    return found


def uncompiled(*_: Any) -> Compiled:
    raise UnsupportedError("nothing is compiled")


def check_same_result(found: Posterior, expected: Posterior, prior: Program, other: Program) -> None:
    """Bit for bit."""
    assert found.bounds == expected.bounds
    for one, two in ((found.moments, expected.moments), (found.q, expected.q), (prior.state(), other.state())):
        assert one.keys() == two.keys()
        assert all(torch.equal(value, two[name]) for name, value in one.items())


@pytest.mark.parametrize("name", FALLING)
def test_natural_gradient_says_so_once_and_gives_what_pyro_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, message = FALLING[name]
    prior, other = Refused(4, f), Refused(4, f)
    found = fitted(prior, message)
    monkeypatch.setattr("scool_ppl.infer.estep.natural.Compiled", uncompiled)
    expected = fitted(other, "nothing is compiled")
    check_same_result(found, expected, prior, other)
    assert not torch.equal(prior.b, Refused(4, f).b), "it was learned"


@pytest.mark.parametrize("f", [hidden, aliased])
def test_numbers_that_leave_torch_are_noticed_at_the_end_only(f: Callable[[Tensor, Tensor], Tensor]) -> None:
    log_lik = random_log_lik(4)
    prior = Refused(4, f)
    case = Case(Joint(prior, log_lik), prior, (evidence_of(log_lik),))
    compiled, interpreted = case.both()
    agree(compiled, interpreted, prior)
    compiled.update("z", case.moments(seed=30)[1]["z"])
    interpreted.update("z", compiled.moments["z"])
    with torch.no_grad():
        prior.b.add_(1)
    compiled.refresh(["b"])
    interpreted.refresh(["b"])
    assert abs(compiled.expected() - interpreted.expected()) > 1e-3


class Counting(GraphPrior):
    """Another density from its fifth run on."""

    def __init__(self, num_clients: int, runs: int = 0) -> None:
        super().__init__(num_clients)
        self.runs = runs
        self.b = nn.Parameter(torch.tensor(0.5).double())

    def model(self, evidence: Evidence) -> Tensor:
        self.runs += 1
        with self.edges:
            graph = pyro.sample("Y", dist.Bernoulli(logits=self.b))
            pyro.factor("moody", (2.0 if self.runs >= 5 else 1.0) * graph)
        return graph


def test_a_density_that_changes_between_runs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once sweeps are over it is another, and from then on it stays that."""
    log_lik = random_log_lik(4)
    recorded = Counting(4)
    case = Case(Joint(recorded, log_lik), recorded, (evidence_of(log_lik),))
    agree(*case.both(), recorded)  # a handful of runs; more would show that it is moody
    prior, other = Counting(4, runs=2), Counting(4, runs=5)
    found = fitted(prior, "what Python does with its numbers")
    monkeypatch.setattr("scool_ppl.infer.estep.natural.Compiled", uncompiled)
    check_same_result(found, fitted(other, "nothing is compiled"), prior, other)


def test_evidence_that_is_a_function_runs_in_pyro_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    log_lik = random_log_lik(4)
    found = {}
    for kind, evidence in (("table", log_lik), ("function", lambda graph: (log_lik * graph).fill_diagonal_(0).sum())):
        found[kind] = STEP(Joint(Tilted(4), evidence), evidence_of(log_lik), {}, rng())
    assert not recwarn.list
    assert found["function"].bounds == pytest.approx(found["table"].bounds, abs=1e-10)


def test_masks_and_scales_of_pyro_are_written_down() -> None:
    class Handled(Program):
        def model(self) -> None:
            with poutine.scale(scale=0.3), pyro.plate("some", 4), poutine.mask(mask=torch.arange(4) != 1):
                z = pyro.sample("z", OneHot(C.softmax(-1)))
                pyro.factor("f", (z * C).sum(-1))

    program = Handled()
    agree(*Case(program, program, ()).both(), program)


@pytest.mark.usefixtures("_rows")
@pytest.mark.parametrize("kind", [*SQUARE, "one client"])
def test_edges_that_come_in_pairs(kind: str) -> None:
    """A site that meets its own transpose: rows of the one are columns of the other."""
    evidence, log_lik = evidence_that(kind, False)
    prior = Mutual(1 if kind == "one client" else K)
    case = Case(Joint(prior, log_lik), prior, (evidence,))
    compiled, interpreted = case.both()
    rise_alike(compiled, interpreted, case.moments(seed=30)[1])


def test_one_row_moves_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.infer.compiled._SMALL", 0)
    compiled, interpreted = case_of("sbm").both()
    rows, moment = torch.tensor([2]), torch.tensor([[0.2, 0.3, 0.5]]).double()
    with torch.no_grad():
        alike(compiled.rise("z", moment, rows), interpreted.rise("z", moment, rows), "rise")


def test_one_client_in_one_block() -> None:
    log_lik = random_log_lik(1)
    prior = sbm(1, 1)
    agree(*Case(Joint(prior, log_lik), prior, (evidence_of(log_lik),)).both(), prior)


def test_a_diagonal_is_refused() -> None:
    axes = Axes()
    with pytest.raises(UnsupportedError, match="a diagonal"):
        product(axes, [Form.of(axes, "x", (3, 3))], ["ii"], "i")


def test_rows_counted_from_the_end() -> None:
    program = Trial(lambda y, z, p, w, b: z * z[torch.arange(4) - 1])
    agree(*Case(program, program, ()).both(), program)


def test_a_prior_in_float32_is_compiled() -> None:
    log_lik = random_log_lik(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        STEP(Joint(SBM(5, 3), log_lik), evidence_of(log_lik), {}, rng())


UNKNOWN: dict[str, Any] = {
    "mul": lambda z, w: torch.mul(z, other=C),
    "transpose": lambda z, w: C.mT * z.transpose(dim0=0, dim1=1),
    "mean": lambda z, w: (z * C).mean(axis=1),
    "sum": lambda z, w: torch.sum(input=z * C),
    "permute": lambda z, w: z.permute(dims=(1, 0)),
    "where": lambda z, w: C.where(C > 0, z),
    "where, a method": lambda z, w: torch.zeros(4, 3).double().where(C > 0, z),
    "div": lambda z, w: torch.div(z, 0.3, rounding_mode="floor") * C,
    "pow": lambda z, w: z ** torch.tensor([2.0, 1.0, 2.0]),
    "pow of a number": lambda z, w: torch.pow(2.0, z),
    "rsub": lambda z, w: torch.rsub(z, 1.0, alpha=2),
    "squeeze": lambda z, w: (z * C).sum().squeeze(0),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_arguments_that_a_rule_does_not_know_are_refused_or_right(name: str) -> None:
    program = Drawn(UNKNOWN[name])
    with contextlib.suppress(UnsupportedError):
        agree(*Case(program, program, ()).both(), program)


def hush(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x.exp()


def doubled(z: Tensor) -> Tensor:
    with torch.no_grad():
        return 2 * z


HIDDEN: dict[str, Any] = {
    "vmap": lambda z, w: torch.vmap(torch.sigmoid)(w) * z,
    "func.grad": lambda z, w: torch.func.grad(lambda x: (x**3).sum())(w) * z,
    "vmap of a moment": lambda z, w: torch.vmap(lambda row: row * 2)(z),
    "no_grad": lambda z, w: hush(w) * z * C,
    "no_grad of a moment": lambda z, w: hush(w * 0) * doubled(z) * z,
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_is_hidden_from_the_recorder_shows_in_the_derivatives(name: str) -> None:
    """The value alone is right, at the moments that it was recorded at."""
    program = Drawn(HIDDEN[name], torch.tensor([2.0, -1.0, 0.5]).double())
    try:
        compiled, interpreted = Case(program, program, ()).both()
    except UnsupportedError:
        return
    with torch.no_grad(), pytest.raises(UnsupportedError, match="hidden from it"):
        check_derivatives(compiled, interpreted, program.parameters(), 1e-8)


def test_a_learned_exponent_is_refused() -> None:
    program = Drawn(lambda z, w: z.mean(0) ** w[0], torch.tensor([2.0, -1.0, 0.5]).double())
    with pytest.raises(UnsupportedError):
        Case(program, program, ()).both()


def test_derivatives_are_compared_once_for_each_kind_of_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.infer.estep.natural._COMPARED", set())
    asked: list[object] = []
    monkeypatch.setattr("scool_ppl.infer.estep.natural.check_derivatives", lambda *given: asked.append(given))
    log_lik = random_log_lik(5)
    for prior in (sbm(5, 3), sbm(5, 3), mmsbm(5)):
        STEP(Joint(prior, log_lik), evidence_of(log_lik), {}, rng())
    assert len(asked) == 2


def test_the_same_rows_of_two_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.infer.compiled._SMALL", 0)
    compiled, interpreted = case_of("sbm").both()
    rows = torch.tensor([3, 1])
    with torch.no_grad():
        for site in ("pi", "z", "Y"):
            alike(compiled.derivative(site, rows), interpreted.derivative(site, rows), site)
