"""Quarantine: who cannot take part in a round, and what a round without them leaves as it was."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from scool_ppl.arguments import check_names
from scool_ppl.candidates import Peers
from scool_ppl.errors import ClientError, InputError, RunError, unknown

if TYPE_CHECKING:
    from scool_ppl.batches import Params, Probe
    from scool_ppl.clients import Clients, Trained
    from scool_ppl.evidence import Evidence
    from scool_ppl.turn import Turn

RESTING = "resting"
"""Entry of the memory, (K, M): last weights of pairs that were masked because a client was absent; NaN elsewhere."""


# Who is to blame.


def check_training(trained: Trained, moved: Tensor, present: Tensor, names: Sequence[str]) -> None:
    """Raises a ClientError for those present (K,) whose network is not finite, or whose loss is not though they moved (K,).

    A client without images has no loss, which is no fault.
    """
    lost = moved.cpu() & ~trained.loss.isfinite()
    broken = torch.zeros_like(lost)
    for value in (*trained.params.values(), *trained.optimizer_state.values()):
        broken |= ~value.flatten(1).isfinite().all(1).cpu() if value.dim() > 1 else ~value.isfinite().cpu()
    _blame(
        lost,
        "its training loss is not finite",
        broken & present & ~lost,
        "its network is not finite after training",
        names,
    )


def check_table(
    table: Tensor, peers: Peers, names: Sequence[str], model: Literal["receiver", "sender", "both"]
) -> None:
    """Raises a ClientError for clients whose network, or else whose data, give no finite entry in any pair (K, M).

    The network of each pair is its receiver's or its sender's, the data are the other's; "both": the pair's entry is of
    both alike, and where that puts the blame on everybody, nobody is blamed.
    """
    rows, columns, senders = peers.pairs()
    bad = ~table.detach()[rows, columns].isfinite()
    if not bool(bad.any()):
        return
    networks, data = (senders, rows) if model == "sender" else (rows, senders)
    broken = _everywhere(networks, bad, len(names))
    if model == "both":
        broken &= ~broken[peers.mask.any(1)].all()
    others = ~broken[networks] & ~broken[data]
    silent = _everywhere(data[others], bad[others], len(names)) if model != "both" else torch.zeros_like(broken)
    _blame(broken, "its network's loss is not finite", silent, "every loss on its data is not finite", names)


def _everywhere(owner: Tensor, bad: Tensor, size: int) -> Tensor:
    """Owners all of whose pairs are bad, (K,)."""
    total, broken = owner.bincount(minlength=size), owner[bad].bincount(minlength=size)
    return (total > 0) & (total == broken)


def check_networks(clients: Clients, params: Params, probe: Probe, present: Tensor) -> None:
    """Raises a ClientError for those whose network has no finite loss on its own probe; all of them if none has."""
    with torch.no_grad():
        broken = ~clients.probe_loss(params, probe).cpu().isfinite() & present
    _blame(broken, "its network's loss is not finite", torch.zeros_like(broken), "", clients.names)


def _blame(one: Tensor, reason: str, other: Tensor, other_reason: str, names: Sequence[str]) -> None:
    reasons = {names[i]: reason for i in one.nonzero().flatten().tolist()}
    reasons |= {names[i]: other_reason for i in other.nonzero().flatten().tolist()}
    if reasons:
        raise ClientError(reasons)


# A round without them.


def sitting_out(absent: Collection[str] | Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Names with the reasons why they are absent."""
    check_names("absent", absent)
    reasons = dict(absent) if isinstance(absent, Mapping) else dict.fromkeys(absent, "absent")
    for name in reasons:
        if name not in names:
            raise unknown("client", str(name), names)
    if len(reasons) == len(names):
        raise InputError("all clients are absent, expected one at least who takes part; leave the round out")
    return reasons


def joined_by(reasons: dict[str, str], fault: ClientError, names: Sequence[str], round: int) -> dict[str, str]:
    """Those absent and those who failed now; a RunError if nobody is left, or a client failed who was not there."""
    fresh = {name: reason for name, reason in fault.reasons.items() if name not in reasons and name in names}
    every = {**reasons, **fresh}
    if not fresh or len(every) == len(names):
        told = "; ".join(f"{name}: {reason}" for name, reason in list((fresh or fault.reasons).items())[:3])
        what = "all clients failed" if fresh else "clients failed that do not take part"
        raise RunError(
            f"{what} in round {round + 1} ({told}); the state is as before; lower the learning rate or look at their data"
        ) from fault
    return every


def attended(turn: Turn, rows: bool) -> Turn:
    """The turn as those present see it: no absent client in the last graph; where `rows` sum to one, they do so again."""
    if not turn.absent or turn.peers is None or turn.weights is None:
        return turn
    peers = turn.peers.among(turn.present)
    weights = torch.where(peers.mask, turn.weights, torch.zeros_like(turn.weights))
    if rows:
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-30)
    return turn._replace(peers=peers, weights=weights)


def resting(turn: Turn, evidence: Evidence) -> Tensor:
    """Pairs of `planned` that are masked because a client is absent, with the last weights they had; see RESTING.

    A pair that would have been looked at for the first time is not among them: nothing is known of it.
    """
    planned = evidence.planned
    masked, last = planned.mask & ~evidence.peers.mask, torch.zeros(planned.mask.shape, dtype=torch.float64)
    known = torch.zeros_like(masked)
    if turn.peers is not None and turn.weights is not None:
        last = planned.take(turn.peers.dense(turn.weights.double()))
        known = planned.take(turn.peers.dense(turn.peers.mask.double())) > 0
    if planned.looked is not None:
        masked &= known | ~planned.looked
    return last.masked_fill(~masked, torch.nan)


def awoken(peers: Peers, weights: Tensor, rest: Tensor | None, rows: bool) -> tuple[Peers, Tensor]:
    """The last round's table and graph with the pairs that rested in it; where `rows` sum to one, they still do."""
    if rest is None:
        return peers, weights
    known = ~rest.isnan()
    last = rest.nan_to_num(0).to(weights)
    others = weights * (1 - last.sum(1, keepdim=True)).clamp(min=0) if rows else weights
    return peers._replace(mask=peers.mask | known), torch.where(known, last, others)


def held(new: Params, old: Params, entries: Mapping[str, Tensor]) -> Params:
    """`new` with the old values of some entries: bool masks over the leading axes, by name; what changed shape is new."""
    kept = dict(new)
    for name, mask in entries.items():
        if name in old and name in new and old[name].shape == new[name].shape:
            mask = mask.view(*mask.shape, *(1,) * (new[name].dim() - mask.dim()))
            kept[name] = torch.where(mask.to(new[name].device), old[name], new[name])
    return kept
