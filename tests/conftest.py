"""What all tests share: one thread per process, where the datasets are, and small evidence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from scool_ppl.look.evidence import Evidence

torch.set_num_threads(1)  # two test processes with two threads each would wait for one another


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder with real datasets; tests that need it are skipped, visibly, where it is not."""
    root = Path(os.environ.get("SCOOL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (root / "MNIST" / "raw").is_dir():
        pytest.skip(f"no datasets in {root}; set SCOOL_DATA")
    return root


def random_log_lik(num_clients: int, seed: int = 0, scale: float = 2.0) -> torch.Tensor:
    """Evidence of random sign, float64."""
    random = torch.Generator().manual_seed(seed)
    return scale * torch.randn(num_clients, num_clients, generator=random, dtype=torch.float64)


def planted(num_clients: int, groups: int, noise: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Group of each client, and log_lik = +-1.5 + noise N(0, 1)."""
    group = torch.arange(num_clients) % groups
    signal = torch.where(group[:, None] == group, 1.5, -1.5).double()
    return group, signal + random_log_lik(num_clients, seed, noise)


def evidence_of(log_lik: torch.Tensor, mask: torch.Tensor | None = None) -> Evidence:
    """Evidence whose candidates are everybody else, less what `mask` takes out."""
    evidence = Evidence.given(loss=-log_lik)
    if mask is not None:
        evidence.peers = evidence.peers._replace(mask=evidence.peers.mask & mask)
    return evidence
