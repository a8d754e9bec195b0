"""Small evidence made by hand, for tests of what is inferred from it."""

from __future__ import annotations

import torch
from torch import Tensor

from scool_ppl.look.evidence import Evidence


def random_log_lik(num_clients: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    """Evidence of random sign, float64."""
    random = torch.Generator().manual_seed(seed)
    return scale * torch.randn(num_clients, num_clients, generator=random, dtype=torch.float64)


def planted(num_clients: int, groups: int, noise: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Group of each client, and log_lik = +-1.5 + noise N(0, 1)."""
    group = torch.arange(num_clients) % groups
    signal = torch.where(group[:, None] == group, 1.5, -1.5).double()
    return group, signal + random_log_lik(num_clients, seed, noise)


def evidence_of(log_lik: Tensor, mask: Tensor | None = None) -> Evidence:
    """Evidence whose candidates are everybody else, less what `mask` takes out."""
    evidence = Evidence.given(loss=-log_lik)
    if mask is not None:
        evidence.peers = evidence.peers._replace(mask=evidence.peers.mask & mask)
    return evidence
