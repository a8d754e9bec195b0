"""Stacking: how much each client relies on each of its candidate networks, as a Pyro program."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from torch import Tensor

from scool_ppl.base import finite, generator
from scool_ppl.errors import InputError
from scool_ppl.infer import NaturalGradient, OneHot, Program

LEAST = 0.002
"""The least concentration of a candidate: exp(E[log w]) of a smaller one is no longer a number above 0."""

SEARCH = NaturalGradient(sweeps=4, tol=1e-2, optimizer=partial(torch.optim.Rprop, lr=0.2), optimizer_steps=300)
"""Rprop, as m's gradient is small at a given q: E[log w] holds it where it is."""


class Stacked(NamedTuple):
    """What `stack` found."""

    weights: Tensor
    """(K, C): E[w_ic], how much client i relies on candidate c; rows sum to 1."""
    common: Tensor
    """(C,): m, how much the clients rely on each candidate on the whole."""
    bound: float
    """log p(m, held-out labels) from below, in nats."""


class Stacking(Program):
    """Each held-out image was labelled by one of its client's candidates (hierarchical stacking).

        m ~ Dirichlet(3/2)             (C,), shared by the clients; a point, the MAP, which 3/2 > 1 keeps off the edges
        w_i ~ Dirichlet(alpha m)       (C,), how much client i relies on each candidate
        c_in ~ Categorical(w_i),  y_in ~ p_c(y | x_in)

    `log_p` (K, C, n) is log p_c(y_in | x_in), `mask` (K, n) says which images there are; clients without any are left
    out. alpha m_c stays at LEAST or above.
    """

    def __init__(self, candidates: int, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha
        self.logits = torch.nn.Parameter(torch.zeros(candidates, dtype=torch.float64))

    @property
    def common(self) -> Tensor:
        """m (C,), a softmax, which no candidate's place in the order matters to."""
        return (self.alpha * self.logits.softmax(-1) + LEAST) / (self.alpha + LEAST * len(self.logits))

    def model(self, log_p: Tensor, mask: Tensor) -> None:
        common = self.common
        pyro.sample("m", dist.Dirichlet(torch.full_like(common, 1.5)), obs=common)
        num_clients, num_images = mask.shape
        with pyro.plate("clients", num_clients, dim=-2), poutine.mask(mask=mask.any(1, keepdim=True)):
            w = pyro.sample("w", dist.Dirichlet(self.alpha * common))
            with pyro.plate("images", num_images, dim=-1), poutine.mask(mask=mask):
                c = pyro.sample("c", OneHot(w))
                pyro.factor("labels", (c * log_p.mT).sum(-1))

    def starts(self, log_p: Tensor, mask: Tensor, random: torch.Generator) -> list[dict[str, Tensor]]:
        """The candidates as likely as they make each image's label."""
        return [{"c": log_p.mT.softmax(-1)}]


def stack(log_p: Tensor, mask: Tensor, alpha: float = 20.0) -> Stacked:
    """How much each client relies on each candidate, from how these predict its held-out labels.

    `log_p` (K, C, n) is log p_c(y_in | x_in) of candidate c on client i's image n, `mask` (K, n) says which images there
    are; clients may have different numbers of them, and who has none gets w_i = m. `alpha` is how many images' worth
    the other clients' choice has. Predict by sum_c weights[i, c] p_c(y | x).
    """
    log_p, mask = checked(log_p, mask)
    if not finite(alpha) or alpha < 1:
        raise InputError(f"alpha is {alpha!r}, expected a number of at least 1: images' worth of the others' choice")
    program = Stacking(log_p.shape[1], alpha)
    with torch.enable_grad():
        found = SEARCH.fit(program, log_p, mask, generator=generator(0, "stacking"))
    common = program.common.detach()
    weights = torch.where(mask.any(1, keepdim=True), found.moments["w"].squeeze(1), common)
    return Stacked(weights, common, found.elbo)


def checked(log_p: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """log_p (K, C, n) in float64, 0 where there is no image, and the mask (K, n)."""
    if log_p.dim() != 3 or 0 in log_p.shape[:2] or mask.shape != (log_p.shape[0], log_p.shape[2]):
        raise InputError(
            f"log_p has shape {tuple(log_p.shape)} and mask {tuple(mask.shape)}, expected (clients, candidates, images) "
            "and (clients, images), with a client and a candidate; pad clients who have fewer images, and mask those"
        )
    if log_p.shape[2] == 0:  # nobody has an image: as if there were one that is masked
        log_p, mask = log_p.new_zeros(*log_p.shape[:2], 1), mask.new_zeros(len(mask), 1)
    log_p = torch.where(mask[:, None], log_p.double(), 0.0)
    if not bool(log_p.isfinite().all()):
        raise InputError(
            "log_p is not finite at an image that is not masked, expected finite log-probabilities; leave out "
            "candidates that predict no number, or who rule out the label of an image"
        )
    return log_p, mask.bool()
