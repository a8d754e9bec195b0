"""Compiled programs against the same programs run by Pyro and autograd, and what is not compiled."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from typing import Any

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
from scool_ppl.infer.compiled import Compiled, UnsupportedError, check_derivatives
from scool_ppl.infer.estep.base import Posterior
from scool_ppl.infer.expectation import Interpreted
from scool_ppl.infer.priors import SBM
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.program import Program
from scool_ppl.look.evidence import Evidence
from tests.helpers.compiled import C, Case, Drawn, agree, alike, random, rise_alike
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
        patch.setattr("scool_ppl.infer.compiled.compiled._SMALL", 0)
        compiled, _ = case_of("sbm").both()
        part = compiled.derivative("z", rows)
        assert compiled.derivative("z", rows) is part
        assert compiled.derivative("z", rows.clone()) is not part
        part = compiled.derivative("z", rows)
        compiled.update("pi", compiled.moments["pi"] - 1)
        alike(compiled.derivative("z", rows), part - 1, "another E[log pi]")


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
    monkeypatch.setattr("scool_ppl.infer.estep.problem.Compiled", uncompiled)
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
    monkeypatch.setattr("scool_ppl.infer.estep.problem.Compiled", uncompiled)
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
    monkeypatch.setattr("scool_ppl.infer.compiled.compiled._SMALL", 0)
    compiled, interpreted = case_of("sbm").both()
    rows, moment = torch.tensor([2]), torch.tensor([[0.2, 0.3, 0.5]]).double()
    with torch.no_grad():
        alike(compiled.rise("z", moment, rows), interpreted.rise("z", moment, rows), "rise")


def test_one_client_in_one_block() -> None:
    log_lik = random_log_lik(1)
    prior = sbm(1, 1)
    agree(*Case(Joint(prior, log_lik), prior, (evidence_of(log_lik),)).both(), prior)


def test_a_prior_in_float32_is_compiled() -> None:
    log_lik = random_log_lik(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        STEP(Joint(SBM(5, 3), log_lik), evidence_of(log_lik), {}, rng())


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


def test_the_same_rows_of_two_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.infer.compiled.compiled._SMALL", 0)
    compiled, interpreted = case_of("sbm").both()
    rows = torch.tensor([3, 1])
    with torch.no_grad():
        for site in ("pi", "z", "Y"):
            alike(compiled.derivative(site, rows), interpreted.derivative(site, rows), site)
