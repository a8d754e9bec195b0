"""Noised evidence: losses that clients hand out of networks on their own images, clipped and noised.

Asked for the mean losses of M networks on its probe of n images, a client releases

    x_m = (1 / n) sum_b clip(l_mb, -C, C) + sigma sqrt(M) C / n xi_m,   m = 1 .. M,   xi standard normal,

l_mb the loss of the m-th network on its b-th image. n is known to everybody: one image more or less counts as one that
adds something or nothing, and moves each mean by at most C / n, whatever it shows, so all M by at most sqrt(M) C / n in
Euclidean norm. So does another image in its place where losses are not negative, as those of labels. One question is one
release: a Gaussian mechanism whose noise is sigma times its sensitivity, which is what `privacy.account` counts. Where a
probe is a sample of more images, no image gains from that: it is counted as if it were there.

What is not a mean of bounded losses is not released: `REFUSED` says what, and why. Networks are private already, and so is
all that is a function of them alone: distances, updates, cosines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from scool_ppl.base.randomness import generator
from scool_ppl.errors import InputError
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.train.questions import (
    Alignment,
    ImageLoss,
    LabelEntropy,
    OwnLoss,
    PairLoss,
    PredictionLoss,
    Question,
)

REFUSED: dict[type[Question], str] = {
    Alignment: "inner products of gradients",
    LabelEntropy: "entropies of labels",
    ImageLoss: "losses image by image",
    PredictionLoss: "losses image by image, by which clients choose together what they deploy",
}
"""Answers that cannot be noised; and gradients of losses, see `check_question`."""


def check_question(question: Question, privacy: Privacy | None) -> None:
    """Raises InputError where the evidence of private clients is to be noised, and this answer cannot be."""
    if privacy is None or privacy.evidence_noise is None:
        return
    reason = REFUSED.get(type(question))
    if isinstance(question, OwnLoss) and differentiable(question):
        reason = "gradients of losses"
    if reason is not None:
        refuse(reason)


def refuse(what: str) -> None:
    """Raises the InputError of evidence that cannot be noised."""
    raise InputError(
        f"clients were asked for {what}, expected mean losses of networks: their evidence is noised, and this cannot be; "
        "choose another model or likelihood, or leave evidence_noise (--dp-evidence-noise) out"
    )


def differentiable(question: OwnLoss) -> bool:
    """Is the gradient of the answer asked for, too?"""
    return torch.is_grad_enabled() and any(value.requires_grad for value in question.networks.values())


def releases(question: Question, num_clients: int) -> Tensor:
    """(K,) 1 for everybody who has to look at its images for the answer, 0 for the others."""
    if isinstance(question, PairLoss):
        return (torch.bincount(_asked(question, num_clients)[0], minlength=num_clients) > 0).double()
    if isinstance(question, OwnLoss) and question.present is not None:
        return question.present.double().cpu()
    return torch.ones(num_clients, dtype=torch.float64)


def bounded(losses: Tensor, clip: float) -> Tensor:
    """Losses of single images, between -clip and clip; nan, of a network that says nothing, is the highest."""
    return losses if clip == math.inf else losses.nan_to_num(clip, clip, -clip).clamp(-clip, clip)


def noised(
    losses: Tensor,
    question: PairLoss | OwnLoss,
    sizes: Tensor,
    privacy: Privacy | None,
    seed: int,
    round: int,
    names: Sequence[str],
) -> Tensor:
    """Losses of pairs (K, M), or of each client's own network (K,), with the noise of whoever's images they are of; sizes:
    (K,) images in the probes.
    """
    if privacy is None or not privacy.evidence_noise:
        return losses
    owners, places = _asked(question, len(names))
    noise = torch.zeros(len(owners), dtype=torch.float64)
    counts = torch.bincount(owners, minlength=len(names)).tolist()
    for owner, mine in enumerate(owners.argsort(stable=True).split(counts)):
        if len(mine):
            number = 0 if question.release is None else int(question.release[owner])
            noise[mine] = noise_of(privacy, len(mine), int(sizes[owner]), seed, round, names[owner], number)
    return losses.index_put(places, noise.to(losses), accumulate=True)


def noise_of(privacy: Privacy, count: int, size: int, seed: int, round: int, name: str, number: int) -> Tensor:
    """The noise (M,) of the losses of M = `count` networks on `size` images, a client's release of this number."""
    assert privacy.evidence_noise is not None
    assert privacy.evidence_clip is not None
    scale = privacy.evidence_noise * math.sqrt(count) * privacy.evidence_clip / max(size, 1)
    random = generator(seed, "private evidence", round, name, number)
    return scale * torch.randn(count, generator=random, dtype=torch.float64)


def _asked(question: PairLoss | OwnLoss, num_clients: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Whose images each loss is of, (n,), and its place in the answer."""
    if isinstance(question, OwnLoss):
        everybody = torch.arange(num_clients)
        return everybody, (everybody,)
    rows, columns, senders = question.peers.pairs()
    return (senders if question.whose == "receiver" else rows).cpu(), (rows, columns)
