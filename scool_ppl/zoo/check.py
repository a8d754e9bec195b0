"""`scool check`: does a prior keep the contract? Each check passes or says what to do."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from pyro import poutine
from torch import Tensor

from scool_ppl.base.arguments import check_whole
from scool_ppl.base.plugins import told
from scool_ppl.base.randomness import generator
from scool_ppl.data.specs import load_federation
from scool_ppl.em.em import EM
from scool_ppl.em.model import CooperationModel, Schedule
from scool_ppl.errors import USER_ERRORS, InputError, original
from scool_ppl.infer.bound import MomentELBO
from scool_ppl.infer.enumeration import enumerated_bound, enumerated_mode, factors
from scool_ppl.infer.estep.modes import ModeSearch
from scool_ppl.infer.estep.svi import SVIStep, guide_of
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.moments import latent_sites, log_joint
from scool_ppl.infer.priors.base import GraphPrior, Joint
from scool_ppl.look.evidence import Evidence
from scool_ppl.train.clients import Clients
from scool_ppl.zoo.diagnosis import check_repeats, infinite, not_linear, one_hot_edges, terms
from scool_ppl.zoo.load import load_model, load_module

CLIENTS = 5
FEW = (3, 2)
"""Numbers of clients for which every configuration is tried."""
SIZED = f"if it is for one number N of clients and not for {CLIENTS}, add clients=N"
TRIED = f"with {FEW[0]} clients or fewer, whose graphs are all tried"
UNTRIED = f"let it run with so few, or leave this out by clients={CLIENTS}"
ENUMERATION = "bound against enumeration"
DRAWS = 800
MOST_CONFIGURATIONS = 3000


class Check(NamedTuple):
    """One line of the report; passed is None where the check does not apply."""

    name: str
    passed: bool | None
    note: str


class _NotApplicableError(Exception):
    """Raised by a check that does not apply."""


class _Case:
    """A model at work: a few clients after a little training, one pair of them masked."""

    def __init__(self, model: str | os.PathLike[str], num_clients: int, choices: Mapping[str, Any]) -> None:
        each = max(1, min(20, 800 // num_clients))  # there are some 1,800 digits
        federation = load_federation(
            f"permuted:digits:clients={num_clients},groups=2,train={each},validation=0.2,test={each}"
        )
        built = load_model(model, num_clients, federation=federation, **choices)
        em = EM(built, Clients(federation), Schedule(warmup_epochs=5))
        self.model: CooperationModel = em.model  # of a portfolio the track that is shown
        self.em = em
        state = em.init()
        start = em.round_start(state)
        evidence = em.look(start, em.train(state, start).trained.params).evidence
        mask = evidence.peers.mask.clone()
        self.masked = (0, int(mask[0].nonzero()[-1])) if mask[0].any() else None
        if self.masked is not None:
            mask[self.masked] = False
        evidence.peers = evidence.peers._replace(mask=mask)
        self.evidence: Evidence = evidence
        self.prior: GraphPrior = em.model.prior
        self.joint = Joint(self.prior, em.model.likelihood(evidence))
        self.guide = guide_of(self.prior, self.joint)
        self.automatic = isinstance(self.guide, AutoMeanField)

    def trace(self, seed: int = 0) -> poutine.Trace:
        torch.default_generator.manual_seed(seed)
        trace = poutine.trace(self.prior).get_trace(self.evidence)
        trace.compute_log_prob()
        return trace

    def scattered(self) -> AutoMeanField:
        """The automatic guide at a random q."""
        guide: AutoMeanField = self.guide
        guide.setup(self.evidence)
        random = generator(0, "check")
        with torch.no_grad():
            for parameter in guide.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=random, dtype=torch.float64))
        return guide


def check_model(model: str | os.PathLike[str], num_clients: int | None = None, **choices: Any) -> list[Check]:
    """All checks on a model file; when an early one fails those that build on it are left out.

    `num_clients` is for a model that is of so many clients only, `choices` are its hyperparameters.
    """
    check_whole("clients", 2 if num_clients is None else num_clients, least=2)
    load_module(model)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # What is not linear is said in the report.
        warnings.filterwarnings("ignore", message=".* runs in Pyro at every evaluation")
        warnings.filterwarnings("ignore", message="Encountered ")  # nor what is no number
        return _report(model, num_clients, choices)


def _report(model: str | os.PathLike[str], num_clients: int | None, choices: Mapping[str, Any]) -> list[Check]:
    report: list[Check] = []
    try:
        case = _Case(model, CLIENTS if num_clients is None else num_clients, choices)
    except USER_ERRORS as error:
        sized = num_clients is None and isinstance(error.__cause__ or error, RuntimeError | ValueError | LookupError)
        return [Check("builds and looks", False, f"{_line(error)}; {SIZED}" if sized else _line(error))]
    report.append(Check("builds and looks", True, type(case.model.prior).__name__))
    for name, check, vital in [*CHECKS, *(PORTFOLIO if case.em.beside else ())]:
        try:
            report.append(Check(name, True, check(case)))
        except _NotApplicableError as reason:
            report.append(Check(name, None, str(reason)))
        except USER_ERRORS as error:
            report.append(Check(name, False, _line(error)))
            if vital:
                return report
    try:
        report.append(_enumerated(model, choices))
    except USER_ERRORS as error:
        fixed = num_clients is not None
        note = f"not {FEW[0]} clients, too many to enumerate" if fixed else f"{TRIED}: {_line(error)}; {UNTRIED}"
        report.append(Check(ENUMERATION, None if fixed else False, note))
    return report


def _line(error: BaseException) -> str:
    return " ".join(str(original(error)).split()) if isinstance(error, InputError) else told(error)


def _runs(case: _Case) -> str:
    trace = case.trace()
    found = [site["name"] for site in terms(trace)]
    if "Y" not in found:
        raise InputError(f"sites {found} are sampled, expected one named 'Y'; write pyro.sample('Y', ...)")
    value = trace.nodes["_RETURN"]["value"]
    if value is None or not torch.equal(torch.as_tensor(value), trace.nodes["Y"]["value"]):
        raise InputError("`model` does not return its sample of 'Y', expected `return pyro.sample('Y', ...)`")
    one_hot_edges(trace, case.prior.kind)
    return f"sites {', '.join(found)}"


def _repeats(case: _Case) -> str:
    check_repeats(case.prior, case.evidence)
    return "at the same seed, and at the same values"


def _shape(case: _Case) -> str:
    shape, expected = tuple(case.trace().nodes["Y"]["value"].shape), tuple(case.evidence.peers.mask.shape)
    if shape != expected:
        raise InputError(
            f"'Y' has shape {shape}, expected {expected}: one row per receiver, one column per candidate sender; "
            "use self.receiver(x) and self.sender(x) inside `with self.edges:`"
        )
    return f"{shape[0]} receivers x {shape[1]} candidates"


def _plates(case: _Case) -> str:
    site = case.trace().nodes["Y"]
    stack = {frame.name for frame in site["cond_indep_stack"]}
    if not ({"receivers", "senders"} <= stack or "clients" in stack):
        raise InputError(
            f"'Y' is in the plates {sorted(stack) or 'none'}, expected receivers and senders; "
            "sample it inside `with self.edges:`"
        )
    return ", ".join(sorted(stack))


def _mask(case: _Case) -> str:
    site = case.trace().nodes["Y"]
    if case.masked is None or site["is_observed"]:
        raise _NotApplicableError("the graph is given" if site["is_observed"] else "no client has a candidate to mask")
    if case.prior.kind == "rows":
        chosen = sum(case.trace(seed).nodes["Y"]["value"] for seed in range(50))
        if bool(chosen[~case.evidence.peers.mask].any()):
            raise InputError("draws choose masked senders, expected none; pass the logits through self.row_logits")
        return "never chosen"
    value = site["value"]
    flipped = torch.where(case.evidence.peers.mask, value, 1 - value)
    with torch.no_grad():
        before, after = (log_joint(case.prior, {**_values(case), "Y": y}, case.evidence)[0] for y in (value, flipped))
    if abs(float(after - before)) > 1e-9:
        raise InputError(
            "masked pairs or edges of a client to itself change the prior, expected no influence; sample 'Y' inside "
            "`with self.edges:`, and set includes_self = True if clients may choose themselves"
        )
    return "no influence, nor have self edges" if not case.prior.includes_self else "no influence"


def _values(case: _Case) -> dict[str, Tensor]:
    return {name: site["value"] for name, site in latent_sites(case.trace())}


def _draws(case: _Case) -> str:
    values = case.trace(1).nodes["Y"]["value"]
    if not bool(torch.isfinite(values).all()) or bool((values < 0).any()):
        raise InputError("draws of 'Y' are negative or not finite, expected 0 or 1, or weights of at least 0")
    torch.default_generator.manual_seed(0)
    case.guide(case.evidence)
    return "prior and guide"


def _sites(case: _Case) -> str:
    torch.default_generator.manual_seed(0)
    guided = {name for name, _ in latent_sites(poutine.trace(case.guide).get_trace(case.evidence))}
    wanted = set(_values(case))
    if wanted - guided:
        raise InputError(f"sites {sorted(wanted - guided)} are missing in the guide; sample them there too")
    if guided - wanted:
        raise InputError(
            f"sites {sorted(guided - wanted)} are only in the guide; sample them in the model or drop them"
        )
    return ", ".join(sorted(wanted)) or "nothing to infer: the graph is given"


def _learns(case: _Case) -> str:
    if not _values(case):
        raise _NotApplicableError("the graph is given")
    parameters = [*case.guide.parameters(), *case.prior.parameters()]
    if not parameters:
        raise InputError(
            "prior and guide have no learnable parameter, expected pyro.nn.PyroParam or torch.nn.Parameter attributes"
        )
    torch.default_generator.manual_seed(0)
    where = infinite(case.joint, case.guide, case.evidence)
    if where is not None:
        raise InputError(
            f"{where} at the start of q, expected a finite bound; keep probabilities inside (0, 1), e.g. by "
            ".clamp(0.01, 0.99)"
        )
    torch.default_generator.manual_seed(0)
    loss = MomentELBO().differentiable_loss(case.joint, case.guide, case.evidence)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    loss = loss.detach()
    if not math.isfinite(float(loss)) or not all(bool(torch.isfinite(g).all()) for g in gradients if g is not None):
        raise InputError(
            f"the bound is {-float(loss):.4g} or its gradient is not finite; keep probabilities inside (0, 1)"
        )
    if all(gradient is None or not bool(gradient.any()) for gradient in gradients):
        raise InputError("no parameter of prior or guide moves the bound; use them in the program")
    return f"bound {-float(loss):.4g}, {len(parameters)} parameter tensors"


def _moments(case: _Case) -> str:
    """The moment bound at a random q against the mean of log p - log q over draws from q."""
    if not _values(case) or not case.automatic:
        raise _NotApplicableError("no automatic guide" if _values(case) else "the graph is given")
    if isinstance(case.model.e_step, ModeSearch):
        raise _NotApplicableError("q is a point mass, nothing is averaged")
    guide = case.scattered()
    torch.default_generator.manual_seed(0)
    with torch.no_grad():
        exact = float(
            MomentELBO(num_particles=100 if "normal" in guide.kinds.values() else 1).bound(
                case.joint, guide, case.evidence
            )
        )
        draws = []
        for _ in range(DRAWS):
            drawn = poutine.trace(guide).get_trace(case.evidence)
            values = {name: site["value"] for name, site in latent_sites(drawn)}
            draws.append(log_joint(case.joint, values, case.evidence)[0] - drawn.log_prob_sum())
    sampled = torch.stack(draws).double()
    error = float(sampled.std()) / math.sqrt(DRAWS)
    if abs(exact - float(sampled.mean())) > 5 * error + 1e-6:
        why = not_linear(case.joint, guide, case.evidence) or "its continuous sites need more draws"
        raise InputError(
            f"the moment bound is {exact:.2f}, {DRAWS} draws give {float(sampled.mean()):.2f} +- {error:.2f}: the program "
            f"is not linear in its moments ({why}); {_LINEAR}"
        )
    return f"{exact:.2f}, sampled {float(sampled.mean()):.2f} +- {error:.2f}"


def _fits(case: _Case) -> str:
    step = case.model.e_step if case.automatic else SVIStep(steps=20)
    posterior = step(case.joint, case.evidence, {}, generator(0, "check", "fit"))
    graph = posterior.moments["Y"]
    if not math.isfinite(posterior.elbo) or not bool(torch.isfinite(graph).all()):
        raise InputError(f"the E-step ends at the bound {posterior.elbo}, expected finite bound and graph")
    return f"{type(step).__name__}: bound {posterior.bounds[0]:.2f} -> {posterior.elbo:.2f}"


def _deploys(case: _Case) -> str:
    state, _ = case.em.step(case.em.init())
    weights = case.em.deploy(state).weights
    off = float((weights.sum(1) - 1).abs().max())
    if weights.min() < 0 or off > 1e-6:
        raise InputError(
            f"the rule's weights sum to one but for {off:.2g}, expected shares of each client's candidates"
        )
    return f"tracks {', '.join(case.em.beside)} beside the one that is shown, {weights.shape[1]} candidates"


_LINEAR = (
    "use BlockBernoulli for edges, OneHot((z @ table.log()).exp()) for a membership that depends on a membership z, or "
    "SVIStep with Trace_ELBO"
)
"""How to write a program that is linear in its moments."""

CHECKS: list[tuple[str, Callable[[_Case], str], bool]] = [
    ("samples a site 'Y' and returns it", _runs, True),
    ("the same program every time", _repeats, True),
    ("shape of 'Y'", _shape, True),
    ("plates of 'Y'", _plates, True),
    ("masked pairs", _mask, False),
    ("draws", _draws, True),
    ("guide has the model's sites", _sites, True),
    ("finite bound and gradients", _learns, True),
    ("moment bound against draws", _moments, False),
    ("E-step", _fits, False),
]
PORTFOLIO: list[tuple[str, Callable[[_Case], str], bool]] = [("all tracks, and what is deployed", _deploys, False)]


def _enumerated(model: str | os.PathLike[str], choices: Mapping[str, Any]) -> Check:
    """The bound against brute force over every configuration of the discrete sites, for a few clients."""
    name = ENUMERATION
    for num_clients in FEW:
        case = _Case(model, num_clients, choices)
        if not _values(case) or not case.automatic:
            return Check(name, None, "nothing to enumerate")
        guide = case.scattered()
        if "normal" in guide.kinds.values():
            return Check(name, None, "a site is continuous")
        if math.prod(len(choices) for choices in factors(guide)) > MOST_CONFIGURATIONS:
            continue
        if isinstance(case.model.e_step, ModeSearch):
            return _highest(case, guide, name)
        exact = float(MomentELBO().bound(case.joint, guide, case.evidence).detach())
        brute = enumerated_bound(case.joint, guide, case.evidence)
        if abs(exact - brute) > 1e-5 * (1 + abs(brute)):  # a prior's constants may be float32
            why = not_linear(case.joint, guide, case.evidence)
            why = f"{why}; {_LINEAR}" if why else "something is counted that q does not have"
            return Check(name, False, f"the moment bound is {exact:.6f}, enumeration gives {brute:.6f}: {why}")
        return Check(name, True, f"{num_clients} clients: both {exact:.6f}")
    return Check(name, None, f"more than {MOST_CONFIGURATIONS} configurations")


def _highest(case: _Case, guide: AutoMeanField, name: str) -> Check:
    """Is the configuration that the E-step ends at the most probable of all?"""
    found = case.model.e_step(case.joint, case.evidence, {}, generator(0, "check", "fit")).elbo
    best = enumerated_mode(case.joint, guide, case.evidence)
    if found < best - 1e-6 * (1 + abs(best)):
        return Check(
            name, False, f"the search ends at {found:.6f}, the best configuration has {best:.6f}; add `starts`"
        )
    return Check(name, True, f"{case.prior.num_clients} clients: both {found:.6f}")
