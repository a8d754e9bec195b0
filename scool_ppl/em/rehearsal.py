"""A rehearsal: a model's prior, likelihood and E-step run once on made-up evidence, before anybody trains for hours."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from pyro import poutine

from scool_ppl.base.machine import threads
from scool_ppl.base.plugins import user_code
from scool_ppl.base.randomness import generator, seeded
from scool_ppl.em.em import EM
from scool_ppl.em.model import CooperationModel
from scool_ppl.em.state import EMState
from scool_ppl.errors import USER_ERRORS, InputError, ScoolError, original
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.estep.svi import guide_of
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.moments import latent_sites, log_joint, site_value
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.program import promoted
from scool_ppl.look.evidence import BlankEvidence, Evidence
from scool_ppl.train.round_start import RoundStart

FEW_PAIRS = 2**13
"""Pairs of clients above which the program is run once, without an E-step."""

SOME_PAIRS = 2**15
"""Pairs of clients above which nobody asks the prior where to start from, either."""

SHORT = {"sweeps": 1, "steps": 1, "moves": 1, "searches": 1, "restarts": 0, "optimizer_steps": 1, "num_samples": 1}
"""Settings of E-steps, and the least work that each can ask for."""


def rehearse(em: EM, fewer: Callable[[int], EM] | None = None) -> None:
    """Raises an InputError where the prior, the likelihood or the E-step of a model cannot be run.

    It runs a copy of them, for as many clients, on random numbers of the right shapes: the EM, its parameters and
    everybody's random numbers stay as they are. What fails neither in the user's code nor as an InputError is left for
    the first round to say.

    fewer: makes the same EM for so many clients. Of many clients some are enough; where a model is not to be had for
    these, or fails, all of them say whether it does.
    """
    if fewer is not None and em.clients.num_clients**2 > FEW_PAIRS:
        with suppress(ScoolError, *USER_ERRORS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _rehearse_tracks(fewer(math.isqrt(FEW_PAIRS)))
            return
    _rehearse_tracks(em)


def _rehearse_tracks(em: EM) -> None:
    for each in (em, *em.beside.values()):
        try:
            with seeded(0), warnings.catch_warnings(), user_code():
                warnings.simplefilter("ignore")  # what is slow is said when it is slow
                _rehearse(each)
        except InputError as error:
            found = original(error)
            raise found from found.__cause__
        except ScoolError:
            raise
        except USER_ERRORS:
            pass


def _rehearse(em: EM) -> None:
    model = em.model._replace(prior=copy.deepcopy(em.model.prior))
    start = _start(em)
    random = generator(em.seed, "rehearsal")
    evidence = BlankEvidence(start, _candidates(model, start), model.needs, random)
    joint = Joint(model.prior, model.likelihood(evidence))
    with threads(1):
        if evidence.peers.mask.numel() > FEW_PAIRS:
            _run_once(joint, evidence, random)
        else:
            bound = shortened(model.e_step)(joint, evidence, {}, random).elbo
            if not math.isfinite(bound):
                raise InputError(
                    f"the bound of {type(model.prior).__name__} is {bound} on random evidence, expected a finite number; "
                    "`scool check` says which site makes it so"
                )


@torch.no_grad()
def _run_once(joint: Joint, evidence: Evidence, random: torch.Generator) -> None:
    """All that a prior's file may define, each a single time."""
    prior, mask = joint.prior, evidence.peers.mask
    guide = guide_of(prior, joint)
    if isinstance(guide, AutoMeanField):
        trace = poutine.trace(joint).get_trace(evidence)
        trace.log_prob_sum()
    else:
        trace = poutine.trace(guide).get_trace(evidence)
        log_joint(joint, {name: site_value(site) for name, site in latent_sites(trace)}, evidence)
    with promoted():
        prior.closed_form({name: site_value(site) for name, site in latent_sites(trace)}, evidence)
        if joint.table is not None and mask.numel() <= SOME_PAIRS:
            prior.starts(evidence, torch.where(mask, joint.table, 0.0), random)


def shortened(e_step: Any) -> Any:
    """The same E-step with as little to do as its settings allow."""
    if not is_dataclass(e_step) or isinstance(e_step, type):
        return e_step
    return replace(e_step, **{name: SHORT[name] for name in (field.name for field in fields(e_step)) if name in SHORT})


def _start(em: EM) -> RoundStart:
    """The first round, with networks of a few numbers where nobody looks at what kind of networks they are."""
    size = em.clients.num_clients
    params = em.clients.init(em.seed) if "updates" in em.model.needs else {"weight": torch.zeros(size, 4)}
    components = {name: value[:1].repeat_interleave(em.model.components, 0) for name, value in params.items()}
    state = EMState(params, params, {}, {}, {}, em.prior_start, None, {}, 0, em.seed)
    return em.round_start(state._replace(components=components if em.model.components else {}))


def _candidates(model: CooperationModel, start: RoundStart) -> Peers:
    """Those that the policy chooses; everybody where it cannot choose among networks that are made up."""
    random = start.generator("rehearsal")
    moved = {name: value + torch.randn(value.shape, generator=random).to(value) for name, value in start.params.items()}
    try:
        return model.peers.once_trained(start, moved)
    except USER_ERRORS:
        return Peers.everybody(start.num_clients, start.includes_self)
