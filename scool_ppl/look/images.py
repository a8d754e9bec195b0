"""BlockMixture: clients whose images the others of a block explain, image by image."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from scool_ppl.base.arguments import positive
from scool_ppl.errors import InputError
from scool_ppl.look.evidence import Evidence
from scool_ppl.look.likelihoods import Likelihood, RowWise
from scool_ppl.train.round_start import Memory, Remembered

LEAST = 1e-12
"""A mixture says at least this of any label, in units of the surest prediction: one wrong label is no proof."""
NEAREST = 3
"""So many networks that explain a client's images best tell how its losses spread in a block."""


@dataclass(frozen=True)
class BlockMixture(Likelihood):
    """log P(D | Y) = sum_i log P(D_i | those whom i hears), image by image, of the networks that nobody has mixed.

        P(D_i | Y_i) = prod_n mean_{j: Y_ij = 1} p(y_n | x_n, theta_j)     each of those heard equally likely
        P(D_i | Y_i = 0) = exp(-n_i min(h_i + errors s_i, chance - errors e_i))     alone, or knowing nothing

    h_i: loss of client i's network on its own validation images, shrunk to the clients' mean by the share of the variance
    that is between clients; s_i: standard error of the difference of the two sides; e_i: that of what a block says, so that
    a block which says no more than chance explains nothing. Every image of i is held out for
    every other network, so both sides are held-out losses in nats: there is no reference, temperature or n_eff. A sum of
    networks inside a product of images is sharper than a mean of pairwise losses. Networks are calibrated first, see
    `train.ImageLoss`; of a sequence each position has a mixture of its own, and the sequence counts as one image.

    In later rounds a network is as bad as the worse of what it was when nobody had mixed it, and what it is now: mixed
    networks carry one another's data, and an attack may begin late. Without a track of local training beside this one the
    first look is remembered.

    Not a sum over pairs: a function of the graph (K, K), exact for graphs of 0 and 1, with rows between 0 and 1 blended.
    """

    needs = ("image_loss", "unmixed_image_loss", "own_image_loss")
    errors: float = 2.0

    def __post_init__(self) -> None:
        if not (positive(self.errors) or self.errors == 0):
            raise InputError(f"BlockMixture has errors={self.errors}, expected a number of standard errors from 0 up")

    def __call__(self, evidence: Evidence) -> Callable[[Tensor], Tensor]:
        if evidence.peers.is_table:
            raise InputError("BlockMixture compares all clients, the peers are a table of some; use peers=All()")
        if bool(self._own(evidence).isnan().all()):
            raise InputError(
                "no client has validation images, BlockMixture compares a block with what each client does alone on such; "
                "give the federation validation=0.2"
            )
        images = explained(self._losses(evidence), self._own(evidence), float(evidence.chance), self.errors)
        return RowWise(
            lambda receivers, rows: images.log_likelihood(rows, receivers).where(evidence.present[receivers], 0)
        )

    def to_remember(self, evidence: Evidence, log_lik: Tensor | Callable[[Tensor], Tensor]) -> Memory:
        """The first look."""
        first, own = evidence.unmixed_image_loss, evidence.own_image_loss
        if evidence.round > 0 or first is None or own is None:
            return {}
        return {"image_loss": Remembered(first, (0, 1)), "own_image_loss": Remembered(own, (0,))}

    @staticmethod
    def _losses(evidence: Evidence) -> Tensor:
        first = _first_look(evidence, "image_loss", evidence.unmixed_image_loss)
        return evidence.image_loss if first is None else worse(first, evidence.image_loss)

    @staticmethod
    def _own(evidence: Evidence) -> Tensor:
        own, last = evidence.own_image_loss, evidence.memory.get("own_image_loss")
        if last is not None and (own is None or bool(own.isnan().all())):  # all who have validation images are away
            own = last.value
        return torch.full((evidence.num_clients, 0, 1), torch.nan) if own is None else own


def _first_look(evidence: Evidence, name: str, now: Tensor | None) -> Tensor | None:
    """What networks that nobody has mixed show now, else what they showed at the first look; None if neither is known."""
    return evidence.memory[name].value if now is None and name in evidence.memory else now


class Explained(NamedTuple):
    """What networks say of the clients' images, n images of T positions; densities of regression may exceed one, so they
    are in a unit in which none does.
    """

    density: Tensor
    """(K, K, n, T): p(y_n | x_n, theta_j) of client i's n-th image, 0 where it is not known."""
    counts: Tensor
    """(K, n, T): what each of them counts, 1 / T, or 0 where there is no image."""
    alone: Tensor
    """(K,): log P(D_i | nobody is heard)."""
    unit: Tensor
    """The logarithm of the unit of the densities."""

    def log_likelihood(self, rows: Tensor, receivers: Tensor | None = None) -> Tensor:
        """log P(D_i | Y_i) (N,) for rows (N, K) of graphs, of these receivers (N,); the rows of one graph if not given.

        A client's hearing itself does not count. All rows of one receiver are one product of matrices.
        """
        receivers = torch.arange(len(rows)) if receivers is None else receivers
        rows = torch.where(receivers[:, None] == torch.arange(len(self.alone)), 0.0, rows)
        heard = rows.sum(1)
        said = torch.where(heard > 0, rows.T / heard.clamp(min=LEAST), 0.0).T
        explained = torch.zeros_like(heard)
        order = receivers.argsort(stable=True)
        for same in order.split(torch.bincount(receivers, minlength=len(self.alone)).tolist()):
            if len(same):
                client = int(receivers[same[0]])
                mean = (said[same] @ self.density[client].flatten(1)).clamp_(min=LEAST)
                explained[same] = mean.log_().add_(self.unit) @ self.counts[client].flatten()
        share = heard.clamp(max=1)
        return share * explained + (1 - share) * self.alone[receivers]


def explained(losses: Tensor, own: Tensor, chance: float = math.inf, errors: float = 2.0) -> Explained:
    """From losses (K, K, n, T) of senders' networks on receivers' images and own held-out ones (K, v, T); nan is none.

    chance: the loss of knowing nothing.
    """
    losses, own = losses.double(), own.double()
    known = ~losses.isnan()
    there = known.any(1)
    counts = there.double() / losses.shape[-1]
    unit = (-losses).where(known & losses.isfinite(), 0).amax().clamp(min=0)
    density = (-losses - unit).exp().nan_to_num(0)
    size = counts.sum((1, 2))
    mean, error = _own_loss(own)
    spread = _spread(density, losses, counts) / size.clamp(min=1)
    nothing = chance - errors * spread.sqrt()
    alone = -size * torch.minimum(mean + errors * (spread + error.square()).sqrt(), nothing)
    return Explained(density, counts, alone, unit)


def _own_loss(own: Tensor) -> tuple[Tensor, Tensor]:
    """Mean held-out loss of each client (K,), shrunk to the clients' mean, and its standard error."""
    losses = own.mean(-1)
    there = ~losses.isnan()
    n, losses = there.sum(1).double(), losses.nan_to_num(0)
    pooled = losses.sum() / n.sum().clamp(min=1)
    mean = torch.where(n > 0, losses.sum(1) / n.clamp(min=1), pooled)
    if int(n.max()) < 2:  # nobody says how its losses spread: as all clients' do
        mean = pooled.expand_as(mean)
    within = ((losses - mean[:, None]).square() * there).sum() / (n - 1).clamp(min=0).sum().clamp(min=1)
    seen = mean[n > 0]
    between = seen.var() - within / n[n > 0].mean() if len(seen) > 1 else torch.zeros(())
    between = between.clamp(min=0)
    share = (between / (between + within / n.clamp(min=1))).nan_to_num(0) * (n > 0)
    return share * mean + (1 - share) * pooled, (share * within / n.clamp(min=1)).sqrt()


def _spread(density: Tensor, losses: Tensor, counts: Tensor) -> Tensor:
    """Variance over each client's images of what a mixture of the networks that explain them best says, (K,)."""
    others = ~torch.eye(len(losses), dtype=torch.bool)
    mean = torch.where(others, losses.nanmean((2, 3)).nan_to_num(torch.inf), torch.inf)
    nearest = mean.argsort(1)[:, : min(NEAREST, max(1, len(mean) - 1))]
    there = counts.any(-1)
    mixture = density[torch.arange(len(mean))[:, None], nearest].mean(1).clamp(min=LEAST).log().mean(-1) * there
    n = there.sum(1)
    centre = mixture.sum(1) / n.clamp(min=1)
    return ((mixture - centre[:, None]).square() * there).sum(1) / (n - 1).clamp(min=1)


def worse(first: Tensor, now: Tensor) -> Tensor:
    """The higher of two losses (K, K, n, T) of each image; one of them where the other is not known."""
    length = max(first.shape[2], now.shape[2])
    padded = [
        torch.nn.functional.pad(losses, (0, 0, 0, length - losses.shape[2]), value=torch.nan) for losses in (first, now)
    ]
    return torch.fmax(*padded)
