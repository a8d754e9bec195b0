"""What came out of a run, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scool_ppl.base.codec import Row
from scool_ppl.report.clients import Clients
from scool_ppl.report.components import Components
from scool_ppl.report.links import Links

SURE = 0.95


def run_in_words(
    summary: Row, clients: Clients, links: Links, blocks: NDArray[np.int64], components: Components | None = None
) -> list[str]:
    """Sentences: how much cooperation helps, who learns from whom, which components are used, what clients ship, what is
    open, what truth says.
    """
    names = [str(name) for name in clients.columns["client"]]
    return [
        text
        for text in (
            _helps(summary, clients),
            _learns(links, names),
            _inside(links, blocks),
            _uses(components),
            _ships(summary),
            _open(links),
            _truth(summary),
        )
        if text
    ]


def _helps(summary: Row, clients: Clients) -> str:
    score = str(summary.get("score", "accuracy"))
    gains = [gain for gain in clients.gains if gain is not None]
    if not gains:
        return "How the clients would fare alone was not measured; scool fit --baseline measures it."
    better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    text = f"{better} of {len(gains)} clients gain by cooperating, {worse or 'none'} lose{'s' * (worse == 1)}: "
    mean = float(np.mean(gains))
    alone = [value for value in clients.numbers("accuracy_local") if value is not None]
    if alone:
        text += f"the mean {score} goes from {np.mean(alone):.3f} alone to {np.mean(alone) + mean:.3f}, "
    text += f"{mean:+.3f}."
    harmed = summary.get("harmed")
    if isinstance(harmed, float):
        count = round(harmed * len(gains))
        whom = "Nobody is" if count == 0 else f"{count} {'is' if count == 1 else 'are'}"
        text += f" {whom} worse off by more than the noise of the test data."
    return text


def _learns(links: Links, names: Sequence[str]) -> str:
    if not links.believed.any():
        return "No link between two clients is believed: everybody learns alone." if len(names) > 1 else ""
    per_client, taught = links.learns, links.teaches
    text = f"A client learns from {per_client.mean():.1f} others in the mean"
    if taught.min() == taught.max():
        text += f", and each is relied on by {taught[0]}."
    else:
        most = np.argsort(-taught, kind="stable")[:3].tolist()
        relied = ", ".join(f"{names[client]} (by {taught[client]})" for client in most if taught[client])
        text += f"; most relied on {'is' if len(most) == 1 else 'are'} {relied}."
    alone = [names[client] for client in np.flatnonzero((per_client == 0) & (taught == 0)).tolist()]
    if alone:
        shown = ", ".join(alone[:5]) + (f" and {len(alone) - 5} more" if len(alone) > 5 else "")
        text += f" {len(alone)} {'stays' if len(alone) == 1 else 'stay'} alone: {shown}."
    return text


def _inside(links: Links, blocks: NDArray[np.int64]) -> str:
    receivers, senders = np.nonzero(links.believed)[0], links.senders[links.believed]
    count, sizes = int(blocks.max()) + 1, np.bincount(blocks)
    if not len(receivers) or count == 1:
        return "All clients are one group." if len(receivers) and len(blocks) > 1 else ""
    inside = float((blocks[receivers] == blocks[senders]).mean())
    alone = int((sizes == 1).sum())
    if alone == count:
        return "No clients are a group: none of the links is inside one."
    groups = f"{count - alone} group{'s' * (count - alone != 1)} of {_range(sizes[sizes > 1])} clients"
    share = "all links are" if inside == 1 else f"{inside:.0%} of the links are"
    return f"There {'is' if count - alone == 1 else 'are'} {groups}; {share} inside a group."


def _range(sizes: NDArray[np.int64]) -> str:
    return f"{sizes.min()}" if sizes.min() == sizes.max() else f"{sizes.min()} to {sizes.max()}"


def _uses(components: Components | None) -> str:
    if components is None:
        return ""
    users, count = components.users, len(components.names)
    order = [place for place in np.argsort(-users, kind="stable").tolist() if users[place]]
    told = ", ".join(f"{components.names[place]} (by {users[place]})" for place in order[:5])
    more = f" and {len(order) - 5} more" if len(order) > 5 else ""
    whose = f"; most used are {told}{more}" if order else ""
    used = f"{len(order)} of {count} component{'s' * (count != 1)}, networks without data of their own,"
    return f"{used} {'is' if len(order) == 1 else 'are'} used{whose}."


def _ships(summary: Row) -> str:
    shares = summary.get("relies_on")
    if not isinstance(shares, dict):
        return ""
    told = [
        f"{name} {share:.0%}" for name, share in sorted(shares.items(), key=lambda item: -item[1]) if share >= 0.005
    ]
    return f"What the clients ship relies, in the mean, on: {'; '.join(told)}."


def _open(links: Links) -> str:
    if links.kind != "edges" or len(links.weights) == 1:
        return ""
    if links.is_best:
        return "This is the most probable graph; how probable others are the model does not say."
    pairs = links.pairs
    doubtful = int(((links.weights > 1 - SURE) & (links.weights < SURE) & pairs).sum())
    if not doubtful:
        return "Every pair is decided: its probability of a link is above 95 % or below 5 %."
    told = "pairs that were looked at" if links.peers.is_table else "pairs"
    return f"{doubtful:,} of {int(pairs.sum()):,} {told} are open: their probability of a link is between 5 % and 95 %."


def _truth(summary: Row) -> str:
    scores = summary.get("graph")
    index = scores.get("ari") if isinstance(scores, dict) else None
    if not isinstance(index, float):
        return ""
    if index > 1 - 1e-9:
        return "The true groups are found exactly."
    return f"Against the true groups the blocks have an adjusted Rand index of {index:.2f}: 1 is exact, 0 is chance."
