"""One network for those who can keep only one: the best candidate by a paired test, else the local one."""

from __future__ import annotations

import torch
from torch import Tensor

from scool_ppl.base import finite, whole
from scool_ppl.deploy.stacking import checked
from scool_ppl.errors import InputError

TINY = 1e-12
"""Nats squared: no variance is less."""


def single(log_p: Tensor, mask: Tensor, local: int = 0, errors: float = 1.0) -> Tensor:
    """The candidate (K,) that each client takes: that of the highest lower bound on its gain, local if none is above 0.

        d_icn ~ (g_ic, within_c),  g_ic ~ (mu_c, between_c)          d_icn = log p_c(y_in | x_in) - log p_local(y_in | x_in)
        gain_ic  = share_ic mean_n d_icn + (1 - share_ic) mu_c       share_ic = between_c / (between_c + within_c / n_i)
        error_ic^2 = (1 - share_ic) between_c + (1 - share_ic)^2 var(mu_c)
        lower_ic = gain_ic - errors error_ic

    Variances are estimated by moments (DerSimonian and Laird, 1986), mu_c is the mean over clients weighted by precision:
    who has few held-out images, or none, follows it, less sure of it the more the clients differ. A single client is taken
    by its own word: share 1, error^2 = within_c / n_i. Where no client has two images the variance within is not known,
    and everybody takes local.

    `log_p` (K, C, n) and `mask` (K, n) are those of `stack`; `local` is the candidate that the client trained alone,
    `errors` by how many standard errors another must be better.
    """
    log_p, mask = checked(log_p, mask)
    if not whole(local, least=0) or local >= log_p.shape[1] or not finite(errors) or errors < 0:
        raise InputError(
            f"single(local={local}, errors={errors}): expected one of the {log_p.shape[1]} candidates as local, counted "
            "from 0, and a number of standard errors of at least 0"
        )
    lower = lower_bounds(log_p - log_p[:, local : local + 1], mask, errors)
    lower[:, local] = 0.0
    highest, best = lower.max(1)
    return torch.where(highest > 0, best, local)


def lower_bounds(differences: Tensor, mask: Tensor, errors: float) -> Tensor:
    """lower_ic (K, C) from paired differences (K, C, n); -inf where it is not known."""
    there = mask[:, None]
    counts = mask.sum(1, keepdim=True).double()
    some = counts > 0
    clients, images = float(some.sum()), float(counts.sum())
    if images <= clients:
        return differences.new_full(differences.shape[:2], -torch.inf)
    own = (differences * there).sum(2) / counts.clamp(min=1)
    within = ((differences - own[:, :, None]).square() * there).sum((0, 2)) / (images - clients)
    noise = within / counts.clamp(min=1)
    if clients == 1:
        return torch.where(some, own, own.sum(0)) - errors * (noise * some).sum(0, keepdim=True).sqrt()
    pooled = (counts * own).sum(0) / images
    scatter = (counts * (own - pooled).square()).sum(0) - (clients - 1) * within
    between = (scatter / (images - counts.square().sum() / images)).clamp(min=0)
    precision = (1 / (between + noise).clamp(min=TINY)) * some
    variance = 1 / precision.sum(0)
    mean = (precision * own).sum(0) * variance
    share = torch.where(some, between / (between + noise).clamp(min=TINY), 0.0)
    gain = share * own + (1 - share) * mean
    return gain - errors * ((1 - share) * between + (1 - share).square() * variance).sqrt()
