"""What a run is made of, as texts that can be compared: its model with all settings, clients, data and schedule."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from torch import Tensor

from scool_ppl.base.describe import named, settings, signature, values
from scool_ppl.deploy.portfolio import Tracks
from scool_ppl.em.em import EM
from scool_ppl.em.state import EMState
from scool_ppl.errors import InputError
from scool_ppl.infer.priors.base import GraphPrior

PARTS = ("prior", "likelihood", "mixing", "peers", "e_step")
TOLD = (*PARTS, "optimizer")
"""Facts that are a name and its settings."""


def facts(em: EM) -> dict[str, list[str]]:
    """All on which the further course of a run depends besides its state."""
    found = {
        **em.clients.facts(),
        **_model_facts(em),
        "schedule": [repr(em.schedule)],
        "seed": [str(em.seed)],
    }
    for track, beside in em.beside.items():
        found |= {f"{name} of the track {track}": told for name, told in _model_facts(beside).items()}
    if isinstance(em, Tracks):
        found["rule of deployment"] = [named(em.portfolio.rule), *settings(em.portfolio.rule)]
    return found


def _model_facts(em: EM) -> dict[str, list[str]]:
    """The parts of a model, and where its prior starts."""
    parts = {part: getattr(em.model, part) for part in PARTS}
    return {
        **{name: [named(part), *settings(part)] for name, part in parts.items()},
        "parameter of the prior": signature(em.prior_start),
        "start of the prior": values(_constrained(em.model.prior, em.prior_start)),
    }


def _constrained(prior: GraphPrior, start: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parameters as the user knows them, e.g. `alpha` where the state has `alpha_unconstrained`."""
    ending, found = "_unconstrained", {}
    last = prior.state()
    prior.load_state_dict(dict(start))
    for name, value in start.items():
        own = name.removesuffix(ending)
        found[own] = getattr(prior, own).detach() if own != name and "." not in own else value
    prior.load_state_dict(last)
    return found


def compare(
    found: Mapping[str, list[str]], expected: Mapping[str, list[str]], what: str, partial: bool = False
) -> None:
    """Refuses the first fact that differs; `found` are those of `what`, `expected` the EM's.

    partial: `found` does not say all; facts that it lacks are not compared, of parts of the model only what it says.
    """
    for name in expected if partial else dict.fromkeys([*expected, *found]):
        own, theirs = expected.get(name, []), found.get(name, [])
        if partial and (name not in found or (name in TOLD and set(theirs) <= set(own))):
            continue
        for one, other in zip_longest(theirs, own, fillvalue="nothing"):
            if one != other:
                raise InputError(
                    f"{what} has the {name} {_cut(one)}, this EM {_cut(other)}; "
                    "resume with what the run began with, or begin a new run in another folder"
                )


def compare_state(state: EMState, own: EMState, what: str) -> None:
    """Names, shapes and dtypes of networks and prior parameters of a state against those of the EM's own first state."""
    for part in ("params", "initial", "prior"):
        found, expected = signature(getattr(state, part)), signature(getattr(own, part))
        compare({part: found}, {part: expected}, what)
    clients = len(next(iter(own.params.values())))
    for name, value in state.optimizer.items():
        if value.dim() == 0 or len(value) != clients:
            raise InputError(
                f"{what} has the optimiser buffer '{name}' of shape {tuple(value.shape)}, expected one row for each "
                f"of {clients} clients; resume with what the run began with"
            )
    if state.peers is not None and len(state.peers.mask) != clients:
        raise InputError(
            f"{what} has peers of {len(state.peers.mask)} clients, expected {clients}; "
            "resume with what the run began with"
        )
    compare({"tracks": [*state.beside]}, {"tracks": [*own.beside]}, what)
    for track, beside in own.beside.items():
        compare_state(state.beside[track], beside, f"{what}, track {track},")


def _cut(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:120]}..."
