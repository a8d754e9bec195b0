"""Absence: what a round without some of the clients is, and what it leaves as it was."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scool_ppl.base.arguments import check_names
from scool_ppl.em.axes import Layout, entries_of, learned_axes, parameter_layouts, site_layouts
from scool_ppl.errors import ClientError, InputError, RunError, unknown
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.estep.base import Posterior
from scool_ppl.infer.priors.base import GraphPrior
from scool_ppl.look.evidence import Evidence
from scool_ppl.train.questions import Params
from scool_ppl.train.round_start import Remembered, RoundStart

if TYPE_CHECKING:
    from scool_ppl.em.state import EMState


RESTING = "resting"
"""Entry of the memory, (K, M): last weights of pairs that were masked because a client was absent; NaN elsewhere."""


def absence_reasons(absent: Collection[str] | Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Names with the reasons why they are absent."""
    check_names("absent", absent)
    reasons = dict(absent) if isinstance(absent, Mapping) else dict.fromkeys(absent, "absent")
    for name in reasons:
        if name not in names:
            raise unknown("client", str(name), names)
    if len(reasons) == len(names):
        raise InputError("all clients are absent, expected one at least who takes part; leave the round out")
    return reasons


def add_failed(reasons: dict[str, str], fault: ClientError, names: Sequence[str], round: int) -> dict[str, str]:
    """Those absent and those who failed now; a RunError if nobody is left, or a client failed who was not there."""
    fresh = {name: reason for name, reason in fault.reasons.items() if name not in reasons and name in names}
    every = {**reasons, **fresh}
    if not fresh or len(every) == len(names):
        told = "; ".join(f"{name}: {reason}" for name, reason in list((fresh or fault.reasons).items())[:3])
        what = "all clients failed" if fresh else "clients failed that do not take part"
        raise RunError(
            f"{what} in round {round + 1} ({told}); the state is as before; lower the learning "
            "rate, scale the inputs, or look at their data"
        ) from fault
    return every


def among_present(start: RoundStart, rows: bool) -> RoundStart:
    """The start as those present see it: no absent client in the last graph; where `rows` sum to one, they do so again."""
    if not start.absent or start.graph is None:
        return start
    weights, peers = start.graph
    peers = peers.among(start.present)
    weights = torch.where(peers.mask, weights, torch.zeros_like(weights))
    if rows:
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-30)
    return start._replace(peers=peers, weights=weights)


def rested_edges(start: RoundStart, evidence: Evidence) -> Remembered:
    """Pairs of `planned` that are masked because a client is absent, with the last weights they had; see RESTING.

    A pair that would have been looked at for the first time is not among them: nothing is known of it.
    """
    planned = evidence.planned
    masked, last = planned.mask & ~evidence.peers.mask, torch.zeros(planned.mask.shape, dtype=torch.float64)
    known = torch.zeros_like(masked)
    if start.graph is not None:
        weights, peers = start.graph
        last = peers.lookup(weights.double(), planned)
        known = peers.lookup(peers.mask.double(), planned) > 0
    if planned.looked is not None:
        masked &= known | ~planned.looked
    return Remembered(last.masked_fill(~masked, torch.nan), (0,) if planned.is_table else (0, 1))


def restore_edges(peers: Peers, weights: Tensor, rest: Remembered | None, rows: bool) -> tuple[Peers, Tensor]:
    """The last round's table and graph with the pairs that rested in it; where `rows` sum to one, they still do.

    A client who was absent, and some of whose candidates were dropped meanwhile, divides its weight among the others.
    """
    if rest is None:
        return peers, weights
    known = ~rest.value.isnan()
    last = rest.value.nan_to_num(0).to(weights)
    others = weights * (1 - last.sum(1, keepdim=True)).clamp(min=0) if rows else weights
    found = torch.where(known, last, others)
    if rows:
        total, was_absent = found.sum(1, keepdim=True), ~peers.mask.any(1, keepdim=True)
        found = torch.where(was_absent & (total > 0) & (total < 1 - 1e-9), found / total, found)
    return peers._replace(mask=peers.mask | known), found


def keep_entries(new: Params, old: Params, entries: Mapping[str, Tensor]) -> Params:
    """`new` with the old values of some entries: bool masks over the leading axes, by name; what changed shape is new."""
    kept = dict(new)
    for name, mask in entries.items():
        if name in old and name in new and old[name].shape == new[name].shape:
            mask = mask.view(*mask.shape, *(1,) * (new[name].dim() - mask.dim()))
            kept[name] = torch.where(mask.to(new[name].device), old[name], new[name])
    return kept


def restore_absent(
    prior: GraphPrior, state: EMState, start: RoundStart, evidence: Evidence, posterior: Posterior, learned: Params
) -> tuple[Posterior, Params]:
    """Posterior and the prior's parameters with what is known of the absent as it was before the round.

    The graph stays as it was inferred, in which they have no edges.
    """
    away = ~start.present
    pairs = away[:, None] | evidence.peers.whose(away)

    def entries(layouts: dict[str, Layout]) -> dict[str, Tensor]:
        return {
            name: pairs if len(axes) == 2 else entries_of(away, axes) for name, (axes, _) in layouts.items() if axes
        }

    q = keep_entries(posterior.q, state.q, entries(parameter_layouts(prior, evidence)))
    moments = keep_entries(posterior.moments, state.moments, entries(site_layouts(prior, evidence)))
    own = {name: entries_of(away, axes) for name, axes in learned_axes(prior).items()}
    return (
        posterior._replace(q=q, moments=moments | {"Y": posterior.moments["Y"]}),
        keep_entries(learned, state.prior, own),
    )
