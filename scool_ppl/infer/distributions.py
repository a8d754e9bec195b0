"""Discrete distributions whose log-density is linear in soft values, so that expectations are evaluations at moments.

Under a mean-field q, E_q[log p(z | pi)] = log p(E[z] | exp E[log pi]) holds exactly when the log-density is linear in
each argument's moments. torch's OneHotCategorical takes an argmax of its value and Bernoulli(z B z') the log of a sum;
these two do neither.
"""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.utils import lazy_property

from scool_ppl.errors import InputError

NEVER = -1e30
"""The logit of what cannot be chosen: its probability is exactly 0, and 0 times it is 0."""


class _SoftOneHot(constraints.Constraint):
    """Rows of the simplex: one-hot vectors and their averages."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= -1e-6).all(-1) & ((value.sum(-1) - 1).abs() < 1e-4)


class _SoftBoolean(constraints.Constraint):
    """Numbers from 0 to 1: Booleans and their averages."""

    is_discrete = True
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0) & (value <= 1)


class OneHot(TorchDistribution):
    """A one-hot vector z over G categories: log p(z) = sum_g z_g log probs_g.

    `probs` (..., G) is taken as it is, not renormalised, so that exp(E[log pi]) may stand for pi; `logits` (..., G) are
    normalised. Samples always come from the normalised probabilities.
    """

    arg_constraints = {"probs": constraints.independent(constraints.nonnegative, 1), "logits": constraints.real_vector}
    support = _SoftOneHot()
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        if (probs is None) == (logits is None):
            raise InputError("OneHot got both or neither of probs and logits, expected exactly one of them")
        if probs is not None:
            self.probs = probs
            shape = probs.shape
        else:
            assert logits is not None
            self.logits = logits
            shape = logits.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @lazy_property
    def probs(self) -> Tensor:
        return self.logits.softmax(-1)

    @lazy_property
    def logits(self) -> Tensor:
        return self.probs.log()

    @property
    def _normalised(self) -> Tensor:
        return self.logits.log_softmax(-1)

    def expand(self, batch_shape: Any, _instance: Any = None) -> OneHot:
        shape = torch.Size(batch_shape) + self.event_shape
        if "probs" in self.__dict__:
            return OneHot(probs=self.probs.expand(shape), validate_args=False)
        return OneHot(logits=self.logits.expand(shape), validate_args=False)

    @property
    def mean(self) -> Tensor:
        """E[z], the normalised probabilities."""
        return self._normalised.exp()

    @property
    def log_probs(self) -> Tensor:
        """log p(z) of each of the one-hot vectors, (..., G): of `probs` as they are."""
        return self.probs.log() if "probs" in self.__dict__ else self._normalised

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        if "probs" in self.__dict__:
            return torch.xlogy(value, self.probs).sum(-1)
        return (value * self._normalised).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """The G one-hot vectors, along a new first dimension: (G, ..., G)."""
        size = self.event_shape[-1]
        parameter = self.probs if "probs" in self.__dict__ else self.logits
        values = torch.eye(size, dtype=parameter.dtype, device=parameter.device)
        values = values.reshape(size, *[1] * len(self.batch_shape), size)
        return values.expand(size, *self.batch_shape, size) if expand else values

    def entropy(self) -> Tensor:
        """-sum_g p_g log p_g, (...)."""
        log_probs = self._normalised
        # Where p is 0, the gradient of p log p must be 0 too; that of entr(p) is not.
        return -(log_probs.exp() * log_probs.clamp(min=NEVER)).sum(-1)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        with torch.no_grad():
            return torch.distributions.OneHotCategorical(logits=self.logits, validate_args=False).sample(sample_shape)


class BlockBernoulli(TorchDistribution):
    """An edge between blocks: log p(y) = sum_gh r_g s_h [y log P_gh + (1 - y) log(1 - P_gh)].

    receiver r (..., G) and sender s (..., H) are one-hot block memberships (or their moments). P is B (G, H), probabilities
    strictly between 0 and 1; for one-hot memberships this is Bernoulli(r' B s).

    Edges may differ in more than their blocks: `offset` (...) adds to the logits of each, P = sigmoid(logit B + offset),
    and B (..., G, H) may be a matrix for each edge. The bound stays exact, as the offset goes inside the sum over blocks:
    there are G x H numbers for every edge then, where one B for all needs G of them for every client. Keep G small.

    `temper` divides log p(y), which is not normalised anew; draws do not depend on it.
    """

    arg_constraints = {
        "receiver": constraints.independent(constraints.nonnegative, 1),
        "sender": constraints.independent(constraints.nonnegative, 1),
        "B": constraints.unit_interval,
    }
    support = _SoftBoolean()
    has_enumerate_support = True

    def __init__(
        self,
        receiver: Tensor,
        sender: Tensor,
        B: Tensor,
        offset: Tensor | None = None,
        validate_args: bool | None = None,
        *,
        temper: float = 1.0,
    ) -> None:
        if B.dim() < 2 or receiver.shape[-1] != B.shape[-2] or sender.shape[-1] != B.shape[-1]:
            raise InputError(
                f"BlockBernoulli got memberships of {receiver.shape[-1]} and {sender.shape[-1]} blocks and B of shape "
                f"{tuple(B.shape)}, expected B with one row per receiver block and one column per sender block"
            )
        self.receiver, self.sender, self.B = receiver, sender, B
        self.offset, self.temper = offset, temper
        shapes = [receiver.shape[:-1], sender.shape[:-1], B.shape[:-2], () if offset is None else offset.shape]
        try:
            batch_shape = torch.broadcast_shapes(*shapes)
        except RuntimeError as error:
            found = ", ".join(str(tuple(shape)) for shape in shapes)
            raise InputError(
                f"BlockBernoulli got edges of shapes {found} by receiver, sender, B and offset, expected shapes that "
                "broadcast; make them (receivers, senders) by self.receiver and self.sender"
            ) from error
        super().__init__(batch_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> BlockBernoulli:
        new = BlockBernoulli(self.receiver, self.sender, self.B, self.offset, False, temper=self.temper)
        # Expanded memberships would be (..., G) for every pair.
        new._batch_shape = torch.broadcast_shapes(self.batch_shape, torch.Size(batch_shape))
        return new

    def _between(self, matrix: Tensor) -> Tensor:
        """r' M s for every pair, without a (..., G, H) tensor where one M is that of all."""
        matrix = matrix.to(self.receiver)
        if matrix.dim() == 2:
            return torch.einsum("...h,...h->...", self.receiver @ matrix, self.sender)
        return torch.einsum("...g,...gh,...h->...", self.receiver, matrix, self.sender)

    def _logits(self) -> Tensor:
        """logit B + offset, (..., G, H)."""
        assert self.offset is not None
        return self.B.logit() + self.offset[..., None, None]

    @property
    def probs(self) -> Tensor:
        matrix = self.B if self.offset is None else self._logits().sigmoid()
        return self._between(matrix).clamp(0, 1).expand(self.batch_shape)

    @property
    def mean(self) -> Tensor:
        return self.probs

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        if self.offset is None:
            total = value * self._between(self.B.log()) + (1 - value) * self._between((-self.B).log1p())
        else:
            logits = self._logits()
            # log P - log(1 - P) is the logit itself.
            total = value * self._between(logits) + self._between(-softplus(logits))
        return total if self.temper == 1 else total / self.temper

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 and 1, along a new first dimension: (2, ...)."""
        values = torch.arange(2, dtype=self.B.dtype, device=self.B.device).reshape(2, *[1] * len(self.batch_shape))
        return values.expand(2, *self.batch_shape) if expand else values

    def entropy(self) -> Tensor:
        probs = self.probs
        return torch.special.entr(probs) + torch.special.entr(1 - probs)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        with torch.no_grad():
            return torch.bernoulli(self.probs.expand(self._extended_shape(torch.Size(sample_shape))))


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) in full precision: torch's own takes x for it from 20 on, which is 2e-9 off."""
    return torch.nn.functional.softplus(x, threshold=50)
